"""Evaluates a model with several lists of interventions, and shows what each of them changes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from entente import checkpoint
from entente.attention.interventions import Intervention, intervene, parse, with_means
from entente.console import Task, print_table, show_share
from entente.data.module import TranslationData
from entente.evaluation import evaluate
from entente.settings import SearchSettings


class Outcome(NamedTuple):
    """What a model scores on a split with interventions."""

    interventions: list[Intervention]
    bleu: float
    nll: float
    changed: float  # the share of translations that differ from those without interventions


def outcomes_of(
    run: checkpoint.TrainedRun,
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
            bleu = float(evaluation.scores("bleu")["bleu"])
            yield Outcome([*listed], bleu, evaluation.nll, different / len(translations))


def show(outcomes: Sequence[Outcome], title: str) -> None:
    """Prints the scores of outcomes, the first of which has no interventions, and their differences to it."""
    plain, lines = outcomes[0], [["intervention", "BLEU", "NLL", "changed"]]
    for outcome in outcomes:
        name = "; ".join(parse(each).effect() for each in outcome.interventions) or "none"
        bleu, nll = outcome.bleu - plain.bleu, outcome.nll - plain.nll
        scores = f"{outcome.bleu:.2f} ({bleu:+.2f})", f"{outcome.nll:.3f} ({nll:+.3f})"
        lines.append([name, *scores, f"{outcome.changed:.1%}"])
    print_table(lines, title)
