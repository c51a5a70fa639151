"""Scores a trained checkpoint on a split of its corpus, or on a user's own files."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, doc
from rich.console import Console

from entente import checkpoint
from entente.attention.numbers import Measured, measure_split, pairs_of
from entente.commands.trained import (
    Accelerator,
    Checkpoint,
    EngineName,
    OutputDir,
    Quantization,
    TrustData,
    load_run,
    problems_of,
    quantized_by_ctranslate2,
    search_of,
    stored_corpus,
)
from entente.commands.translate import Engine
from entente.config.schema import fill
from entente.data.alignments import pharaoh, read_pharaoh
from entente.data.corpora import Corpus, with_text
from entente.data.files import read_parallel
from entente.data.module import TranslationData, split_of, together_of
from entente.data.pairs import Pairs
from entente.data.tokenizer import Vocabulary
from entente.decoding.ctranslate2 import CTranslate2
from entente.decoding.search import Search
from entente.errors import InputError
from entente.evaluation import Evaluation, evaluate
from entente.files.names import file_in, is_name
from entente.files.reading import is_stream, path_of
from entente.files.writing import made, writable, write_json, write_text
from entente.process import Threads, prepare_process
from entente.training.report import show, write_translations
from entente.training.train import placed

log = logging.getLogger("entente")


ONE_TOKEN = Search(length_factor=0, length_offset=1)


def links_need_files(src: str | None, alignments: str | None) -> None:
    """Links are of a user's own files; the grammar knows its own."""
    if alignments and not src:
        raise ValueError(f"alignments={alignments} goes with src=FILE and tgt=FILE; give these too, or leave it out")


def measured_with_attention(attention: bool, alignments: str | None, occlusion: int) -> None:
    """What is only measured with the rest of the attention."""
    if not attention and (alignments or occlusion):
        raise ValueError(f"alignments={alignments} occlusion={occlusion} need attention=true; add it, or leave them out")


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """The settings of `entente evaluate`."""

    checkpoint: Checkpoint
    split: Annotated[
        str | Sequence[str],
        doc("of the run's corpus; several: split=[valid,test], or all; test@alone, test@mixed: batched otherwise"),
    ] = "test"
    trust_data: TrustData = False
    src: Annotated[str | None, doc("your own pair of files instead of a split: src=FILE tgt=FILE")] = None
    tgt: str | None = None
    attention: Annotated[bool, doc("the attention in numbers too, and as word alignment")] = False
    alignments: Annotated[
        str | None, doc("gold links of your own files, a line per pair: 0-0 1-2 sure, 1?3 possible; words are split at spaces")
    ] = None
    occlusion: Annotated[int, Ge(0), doc("sentences on which attention is compared with leaving words out")] = 0
    output: Annotated[str | None, doc("a folder for metrics.json, translations and alignments")] = None
    output_dir: OutputDir = "outputs"
    accelerator: Accelerator = "auto"
    threads: Threads = None
    engine: EngineName = "torch"
    quantization: Quantization = None
    search: Annotated[Mapping[str, Any], doc("null: as in the run")] = field(default_factory=dict)

    relations = (links_need_files, measured_with_attention, quantized_by_ctranslate2)


check = partial(problems_of, Evaluate)


def evaluate_checkpoint(config: Mapping[str, Any]) -> dict[str, Any]:
    """Decodes and scores splits of the corpus a checkpoint was trained on, or a user's own pair of files; prints the table
    and, where `output` is given, writes metrics.json and translations there. The NLL is torch's, whatever engine translates."""
    settings = fill(Evaluate, "", config)
    prepare_process(settings.threads)
    output = path_of(settings.output) if settings.output else None
    if output:
        with writable(f"output={output}"):
            refuse_run(output)
    run = load_run(settings.checkpoint, settings.accelerator)
    how = search_of(run, settings.search)
    other = None if settings.engine == "torch" else CTranslate2(run, how, settings.quantization)
    if settings.src or settings.tgt:
        corpus = _own_files(settings.src, settings.tgt, run.vocabulary)
        if settings.alignments:
            [(name, pairs)] = corpus.tests.items()
            corpus.gold[name] = read_pharaoh(path_of(settings.alignments), pairs["src"], pairs["tgt"])
        splits = list(corpus.tests)
    else:
        corpus = stored_corpus(run, settings.checkpoint, settings.trust_data)
        splits = _chosen(settings.split, corpus)
    data = TranslationData(corpus, run.vocabulary, **run.config["data"]["batch"], seed=run.config["seed"])
    data.check_lengths(splits)
    if output:
        with writable(f"output={output}"), made(output):
            pass  # before any work
    with placed(run.model, settings.accelerator, run.config["trainer"]["precision"]):
        torchs = ONE_TOKEN if other else how
        evaluations = {split: evaluate(run.model, run.vocabulary, data.evaluation(split), torchs) for split in splits}
    if other:
        evaluations = {split: _translated_by(other, run, evaluation) for split, evaluation in evaluations.items()}
    metrics = {split: evaluation.metrics() for split, evaluation in evaluations.items()}
    if other:
        for split in splits:
            metrics[split]["engine"] = other.name
    measured = _measured(run, data, splits, settings.occlusion) if settings.attention else {}
    for split, found in measured.items():
        metrics[split]["attention"] = found.report()
    if output:
        with writable(f"output={output}"):
            write_translations(output, evaluations)
            for split, found in measured.items():
                if not found.alignments:
                    continue
                write_text(file_in(output / "alignments", split, ".pharaoh"), pharaoh(found.links()))
            write_json(output / "metrics.json", metrics)
    show(metrics, f"{settings.checkpoint}, step {run.step}, beam {how.beam}" + (f", {other.name}" if other else ""))
    for split in splits:
        lengths = ", ".join(f"{row['words']}: {row['bleu']:.1f}" for row in metrics[split]["bleu_by_source_length"])
        log.info("%s  BLEU by source words  %s", split, lengths)
    for split, found in measured.items():
        show_attention(split, found)
    for name, signature in metrics[splits[0]]["signature"].items():
        log.info("%s signature  %s", name, signature)
    return metrics


def refuse_run(output: Path) -> None:
    """The directory of a run, whose own scores and translations would be lost, and which counts as finished by its scores."""
    if (output / "config.yaml").exists():
        raise InputError(f"output={output}: this is the directory of a run, which keeps its own scores; give another folder")


def _translated_by(engine: Engine, run: checkpoint.Run, evaluation: Evaluation) -> Evaluation:
    """The evaluation with an engine's translations in place of those it has."""
    best = [n_best[0].tokens for n_best in engine(evaluation.sources)]
    return replace(evaluation, hypotheses=[run.vocabulary.tgt.decode(tokens) for tokens in best])


def _measured(run: checkpoint.Run, data: TranslationData, splits: list[str], occluded: int) -> dict[str, Measured]:
    """The attention of each split in numbers. The head whose alignment is reported is chosen on validation where its gold is
    known; else on the split itself, which the report says."""
    corpus = data.corpus
    known = "valid" in corpus.gold and any(split_of(split) in corpus.gold for split in splits)
    found: dict[str, Measured] = {}
    for split in dict.fromkeys(["valid", *splits] if known or "valid" in splits else splits):
        log.info("measuring attention: %s", split)
        found[split] = measure_split(run.model, run.vocabulary, pairs_of(data, split), occluded, found.get("valid"))
    return {split: found[split] for split in splits}


def show_attention(split: str, found: Measured) -> None:
    """Tables of what the heads do."""
    console = Console(markup=False, emoji=False)
    for table in found.tables(split):
        console.print(table)


def _chosen(given: str | Sequence[str], corpus: Corpus) -> list[str]:
    """The splits meant, each once."""
    asked = [given] if isinstance(given, str) else given
    splits = list(dict.fromkeys(split for one in asked for split in (["valid", *corpus.tests] if one == "all" else [one])))
    if not splits:
        raise InputError("split=[]: give one at least, or all")
    for split in splits:
        corpus.split(split_of(split))  # refuses an unknown one before any work
        together_of(split)
    return splits


def _own_files(src: str | None, tgt: str | None, vocabulary: Vocabulary) -> Corpus:
    if not src or not tgt:
        raise InputError("src and tgt go together: give both files, src=FILE tgt=FILE")
    one, other = path_of(src), path_of(tgt)
    if is_stream(one) and is_stream(other) and one.samefile(other):
        raise InputError(f"src={src} tgt={tgt}: this is one stream, which can be read only once; give two")
    where = f"{one} and {other}"
    pairs = Pairs.of(read_parallel(one, other), where)
    for tokenizer, side, file in ((vocabulary.src, 0, src), (vocabulary.tgt, 1, tgt)):
        for number, pair in enumerate(pairs, start=1):  # before any is dropped, so that a line has its number
            tokenizer.refuse_too_long(pair[side], f"{file}, line {number}")
    name = one.name if is_name(one.name) and "@" not in one.name else "own"
    usable = with_text(where, pairs)
    return Corpus(name, train=usable, valid=usable, tests={name: usable})
