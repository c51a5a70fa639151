"""Score a checkpoint. It translates splits of the run's corpus or your own files, and prints BLEU, chrF, TER and NLL.

entente evaluate checkpoint=outputs/RUN split=all search.beam=5 attention=true
entente evaluate checkpoint=outputs/RUN src=my.fr tgt=my.en output=scores
entente evaluate checkpoint=RUN intervene="[{mute: cross, layer: 2, head: 1}]"
"""

from itertools import chain
from pathlib import Path

from entente.attention import numbers
from entente.attention.interventions import intervene, parse, with_means
from entente.checkpoint import TrainedRun
from entente.commands import scoring
from entente.commands.settings import EvaluateSettings
from entente.console import Task, log
from entente.data.alignments import pharaoh, read_pharaoh
from entente.data.batches import split_of
from entente.data.module import TranslationData
from entente.decoding.search import search_name
from entente.errors import InputError
from entente.evaluation import bleu_tokenizer, evaluate, show, write_translations
from entente.files import write_json, write_text
from entente.training.trainer import on_accelerator
from entente.validation import with_changes


def main(settings: EvaluateSettings) -> None:
    output = Path(settings.output) if settings.output else None
    if output and (output / "config.yaml").exists():  # metrics.json would mark the run as finished
        raise InputError(f"output={output}: this is the directory of a run, which keeps its own scores; give another folder")
    listed = [each for each in settings.intervene if isinstance(each, dict)]
    tables = [each for each in settings.intervene if isinstance(each, tuple)]
    run, data, search = scoring.prepare(settings)
    evaluation_settings = with_changes(run.settings.evaluation, settings.evaluation.model_dump())
    tokenize = bleu_tokenizer(run.settings, evaluation_settings)
    splits = _splits(settings, data)
    evaluation_splits = {split: data.evaluation(split) for split in splits}
    if tables:
        results = {}
        with on_accelerator(run.model, settings.accelerator, run.settings.trainer.precision):
            for split in splits:
                rows = [*scoring.outcomes_of(run, data, split, tables, search, tokenize, output)]
                results[split] = [outcome._asdict() for outcome in rows]
                scoring.show(rows, f"{settings.checkpoint}, {split}")
        if output:
            write_json(output / "interventions.json", results)
        return
    interventions = with_means(run.model, listed, lambda: data.evaluation("valid").batches)
    with (
        on_accelerator(run.model, settings.accelerator, run.settings.trainer.precision),
        intervene(run.model, interventions, run.vocabulary),
    ):
        for intervention in listed:
            log.info("with %s", parse(intervention).effect())
        if output:
            output.mkdir(parents=True, exist_ok=True)  # fails before the work if there can be no such folder
        metrics = {}
        for split in splits:
            log.info("evaluating %s", split)
            with Task(f"evaluating {split}"):
                evaluation = evaluate(run.model, run.vocabulary, evaluation_splits[split], search, tokenize)
            if output:
                write_translations(output, {split: evaluation})  # before they are scored, which may take long
            with Task(f"scoring the translations of {split}"):
                metrics[split] = evaluation.metrics(evaluation_settings.metrics)
        measured = _measured(run, data, splits, settings.occlusion) if settings.attention else {}
    for split, measurements in measured.items():
        metrics[split]["attention"] = measurements.report
        if output and measurements.links:
            write_text(output / "alignments" / f"{split}.pharaoh", pharaoh(measurements.links))
    if output:
        extra = {"interventions": listed} if listed else {}
        write_json(output / "metrics.json", {split: {**metrics[split], **extra} for split in splits})
    show(metrics, ", ".join([settings.checkpoint, f"step {run.step}", search_name(search)]))
    for split in splits:
        lengths = ", ".join(f"{row['words']} words {row['bleu']:.1f}" for row in metrics[split]["bleu_by_source_length"])
        log.info("BLEU on %s by source length: %s", split, lengths)
    for split in measured:
        numbers.show(metrics[split]["attention"], split)
    for name, signature in metrics[splits[0]]["signature"].items():
        log.info("signature of %s: %s", name, signature)


def _measured(run: TrainedRun, data: TranslationData, splits: list[str], occluded: int) -> dict[str, numbers.Measured]:
    """Measures the attention on each split. The head that aligns words best is chosen on the validation split if that has gold
    links, and otherwise on the measured split itself."""
    corpus = data.corpus
    has_gold = "valid" in corpus.gold and any(split_of(split) in corpus.gold for split in splits)
    measured: dict[str, numbers.Measured] = {}
    for split in dict.fromkeys(["valid", *splits] if has_gold or "valid" in splits else splits):
        log.info("measuring the attention on %s", split)
        with Task(f"measuring the attention on {split}"):
            pairs = numbers.pairs_of(data, split)
            measured[split] = numbers.measure_split(run.model, run.vocabulary, pairs, occluded, measured.get("valid"))
    return {split: measured[split] for split in splits}


def _splits(settings: EvaluateSettings, data: TranslationData) -> list[str]:
    """Returns the requested splits without duplicates. Reads gold links into the corpus, if there are any."""
    if settings.src:
        [name] = data.corpus.tests
        if settings.alignments:
            data.corpus.gold[name] = read_pharaoh(Path(settings.alignments), data.corpus.valid["src"], data.corpus.valid["tgt"])
        return [name]
    names = [settings.split] if isinstance(settings.split, str) else settings.split
    splits = (["valid", *data.corpus.tests] if name == "all" else [name] for name in names)
    return list(dict.fromkeys(chain.from_iterable(splits)))
