"""Reads what commands measure a model on, evaluates it with lists of interventions, and shows what each of them changes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from entente.attention.interventions import Intervention, intervene, parse, with_means
from entente.checkpoint import TrainedRun, load
from entente.commands.settings import ScoringSettings
from entente.console import Task, log, print_table, show_share
from entente.data.corpora import Corpus, corpus_of, describe_sources, read_corpus
from entente.data.files import read_parallel
from entente.data.module import TranslationData
from entente.errors import InputError
from entente.evaluation import evaluate
from entente.files import is_split
from entente.settings import SearchSettings
from entente.validation import with_changes


class Outcome(NamedTuple):
    interventions: list[Intervention]
    bleu: float
    nll: float
    changed: float  # the share of translations that differ from those without interventions


def stored_corpus(run: TrainedRun, path: str, trusted: bool) -> Corpus:
    """Reads the corpus of a checkpoint. Raises InputError if it has files or URLs, which others chose, unless `trusted`."""
    if places := describe_sources(run.settings.data):
        if not trusted:
            rule = "add trust_data=true to read the corpus that this checkpoint names, or give your own text"
            raise InputError(f"checkpoint={path}: {rule}: {places}")
        log.info("reading the corpus that %s names: %s", path, places)
    return read_corpus(run.settings.data, Path("outputs/cache"))


def prepare(settings: ScoringSettings) -> tuple[TrainedRun, TranslationData, SearchSettings]:
    """Returns the run of a checkpoint; its corpus, or one whose only test set holds the files `src` and `tgt`; and how to
    search for the best translations."""
    run = load(settings.checkpoint)
    search = with_changes(run.settings.search, settings.search.model_dump() | {"n_best": 1})
    if settings.src and settings.tgt:
        src, tgt = Path(settings.src), Path(settings.tgt)
        pairs = ((source, target) for _, source, target in read_parallel(src, tgt))
        corpus = corpus_of(pairs, src.name if is_split(src.name) else "own", f"{src} and {tgt}")
    else:
        corpus = stored_corpus(run, settings.checkpoint, settings.trust_data)
    batch = run.settings.data.batch.model_copy(update={"both_directions": 0})
    return run, TranslationData(corpus, run.vocabulary, batch), search


def outcomes_of(
    run: TrainedRun,
    data: TranslationData,
    split: str,
    lists: Sequence[Sequence[Intervention]],
    search: SearchSettings,
    tokenize: str,
    output: Path | None,
) -> Iterator[Outcome]:
    """Yields the outcome without interventions, and then that of each list. `to: mean` means that of the validation
    split. output: a folder that must be writable."""
    evaluation_split = data.evaluation(split)
    resolved = [with_means(run.model, each, lambda: data.evaluation("valid").batches) for each in ([], *lists)]
    for interventions in resolved:  # a mistake is found before anything is evaluated
        with intervene(run.model, interventions, run.vocabulary):
            pass
    if output:
        output.mkdir(parents=True, exist_ok=True)  # fails before the work if there can be no such folder
    translations: list[str] = []
    rows = list(zip(([], *lists), resolved, strict=True))
    with Task(f"evaluating {split}"):
        for listed, interventions in show_share(rows, len(rows), "the evaluations"):
            with Task("decoding"), intervene(run.model, interventions, run.vocabulary):
                evaluation = evaluate(run.model, run.vocabulary, evaluation_split, search, tokenize)
            translations = translations or evaluation.hypotheses
            different = sum(a != b for a, b in zip(evaluation.hypotheses, translations, strict=True))
            yield Outcome([*listed], evaluation.scores("bleu")["bleu"], evaluation.nll, different / len(translations))


def show(outcomes: Sequence[Outcome], title: str) -> None:
    """Prints the scores of outcomes, the first of which has no interventions, and their differences to it."""
    plain, lines = outcomes[0], [["intervention", "BLEU", "NLL", "changed"]]
    for outcome in outcomes:
        name = "; ".join(parse(each).effect() for each in outcome.interventions) or "none"
        bleu, nll = outcome.bleu - plain.bleu, outcome.nll - plain.nll
        scores = f"{outcome.bleu:.2f} ({bleu:+.2f})", f"{outcome.nll:.3f} ({nll:+.3f})"
        lines.append([name, *scores, f"{outcome.changed:.1%}"])
    print_table(lines, title)
