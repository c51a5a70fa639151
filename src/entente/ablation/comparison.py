"""Compares each variant of a suite with the baseline: scores over seeds, whether a difference is significant, and a verdict.

p: paired bootstrap resampling (Koehn 2004) of the translations by sacreBLEU, variant against the baseline of the same seed; the
largest p over the seeds, so that a difference counts only where every seed shows it; doubled, since sacreBLEU counts one tail
and a difference may go either way; corrected for the number of variants on a split (Holm 1979). It says how the difference
generalises to other sentences, not to other seeds: for those there is the standard deviation.

Verdicts:
    worse, better              on the first test split: every seed differs in this direction, and Holm's p < 0.05
    as good                    no difference shown with this many seeds and sentences, which proves no equality
    never left the plateau     NLL on test is at least 0.9 of what knowing only how often each piece occurs gives
    diverged                   NLL on test is no finite number, or above that of guessing evenly by more than 1 nat
    crashed, killed, diverged, refused, not finished, not trained    what became of a run without metrics
"""

import csv as csv_format
import io
import logging
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval, doc
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from entente.ablation.runs import Run, Suite
from entente.config.schema import problems
from entente.console import escape
from entente.console.escape import table as markdown_table
from entente.errors import InputError

ALPHA = 0.05  # error probability of a split's claims "worse" and "better" all together
REACHED = 0.9  # share of the baseline's validation BLEU
PLATEAU = 0.9  # share of the unigram NLL
BASELINE, AS_GOOD, WORSE, BETTER = "baseline", "as good", "worse", "better"
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=select_autoescape(["html.j2"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
FAILED = ("crashed", "killed", "diverged", "refused")  # states that are verdicts as they stand


@dataclass(frozen=True)
class Compare:
    """configs/compare.yaml"""

    suite: Annotated[str, doc("the directory of a suite, as `entente ablate` writes it, or of a published one")]
    output: Annotated[str | None, doc("a folder for comparison.html, .md and .csv; null: the suite's own")] = None
    # All samples are drawn at a time, each as long as the test set.
    samples: Annotated[int, Interval(ge=1, le=100_000), doc("of the bootstrap")] = 2000
    publish: Annotated[str | None, doc("a folder to copy what is worth keeping to, without weights and events")] = None
    output_dir: str = "outputs"


def check(config: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with the configuration, one line each."""
    return problems(Compare, "", config)


@dataclass(frozen=True)
class Cell:
    """A variant on a test split, over its finished seeds. *_sd: sample standard deviation, None with one seed. difference: of
    mean BLEU to the baseline's, over the seeds that both have; lowest and highest of a single seed. p: sacreBLEU's, of one
    tail; p_holm: of both, corrected."""

    bleu: float
    bleu_sd: float | None
    chrf: float | None
    chrf_sd: float | None
    baseline: float | None = None
    difference: float | None = None
    lowest: float | None = None
    highest: float | None = None
    p: float | None = None
    p_holm: float | None = None


@dataclass(frozen=True)
class Row:
    """A variant. again: BLEU of splits decoded in another way, such as test@alone. nll: of the first test split. steps: till
    validation BLEU is REACHED of the baseline's best, None where a seed never gets there. about: what its file says; proof: how
    it differs from the baseline before training, by aspect."""

    variant: str
    verdict: str
    finished: int
    runs: int
    cells: dict[str, Cell]
    again: dict[str, float]
    nll: float | None
    parameters: int | None
    tokens_per_second: float | None
    steps: float | None
    about: str
    proof: dict[str, str]

    @property
    def failed(self) -> bool:
        """Whether there is something to explain."""
        return self.verdict.partition(";")[0] not in (BASELINE, AS_GOOD, BETTER)


@dataclass(frozen=True)
class Comparison:
    """rows: in the suite's order, the baseline first. splits: the test splits; again: those decoded in another way."""

    name: str
    seeds: list[int]
    samples: int
    splits: list[str]
    again: list[str]
    signature: str
    command: str
    rows: list[Row]

    @property
    def notes(self) -> list[str]:
        """How the numbers were made, a sentence each."""
        return TEMPLATES.get_template("notes.j2").render(vars(self), alpha=ALPHA).splitlines()


def compare(suite: Suite, samples: int = 1000) -> Comparison:
    """samples: of the bootstrap."""
    known = list(dict.fromkeys(chain.from_iterable(run.metrics for run in suite.runs if run.metrics)))
    splits = [split for split in known if split != "valid" and "@" not in split]
    again = [split for split in known if "@" in split]
    first = splits[0] if splits else ""
    baseline = {run.seed: run for run in suite.of(suite.variants[0])}
    cells = {split: _cells(suite, split, baseline, samples) for split in splits}
    rows = []
    for variant in suite.variants:
        runs = suite.of(variant)
        finished = [run for run in runs if run.metrics]
        rows.append(
            Row(
                variant,
                _verdict(runs, baseline, cells.get(first, {}).get(variant), first),
                len(finished),
                len(runs),
                {split: cells[split][variant] for split in splits if variant in cells[split]},
                {split: mean for split in again if (mean := _mean(_values(runs, split, "bleu"))) is not None},
                _mean(_values(runs, first, "nll")),
                next((run.training.parameters for run in runs if run.training), None),
                _mean([speed for run in runs if (speed := _speed(run)) is not None]),
                _steps(finished, baseline),
                suite.about.get(variant, ""),
                next((run.proof for run in runs if run.proof), {}),
            )
        )
    signature = next((scores.signature.get("bleu", "") for run in suite.runs if (scores := run.scores(first))), "")
    return Comparison(suite.name, suite.seeds, samples, splits, again, signature, suite.command, rows)


def paired_bootstrap(
    references: Sequence[str], baseline: Sequence[str], others: Mapping[str, Sequence[str]], samples: int
) -> dict[str, float]:
    """p of each one's difference in BLEU to the baseline, as `sacrebleu --paired-bs` has it; 1 where there is none, of which
    sacreBLEU says the smallest p there is."""
    chatter = logging.getLogger("sacrebleu")
    level = chatter.level
    chatter.setLevel(logging.ERROR)
    try:
        systems = [("", baseline), *others.items()]
        _, results = PairedTest(systems, {"BLEU": BLEU()}, [references], test_type="bs", n_samples=samples)()
    finally:
        chatter.setLevel(level)
    base, *results_of_others = results["BLEU"]
    return {
        name: 1.0 if result.score == base.score else result.p_value  # type: ignore[union-attr, misc]
        for name, result in zip(others, results_of_others, strict=True)
    }


def holm(ps: Mapping[str, float]) -> dict[str, float]:
    """p values corrected for their number (Holm 1979): the smallest times n, the next times n - 1, ..., never falling."""
    adjusted: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(ps, key=lambda name: ps[name])):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[name]))
        adjusted[name] = largest
    return adjusted


def _cells(suite: Suite, split: str, baseline: Mapping[int, Run], samples: int) -> dict[str, Cell]:
    """Returns the cell of each variant that has the split."""
    compared: dict[str, list[tuple[float, float, float]]] = defaultdict(list)  # p, BLEU, and the baseline's BLEU, by seed
    for seed, base in baseline.items():
        others = {run.variant: run for run in suite.runs if run.seed == seed and run is not base and run.scores(split)}
        if not others or (standard := base.scores(split)) is None:
            continue
        texts = {variant: run.translations(split) for variant, run in others.items()}
        own = base.translations(split)
        for variant, columns in texts.items():
            if columns["reference"] != own["reference"]:
                raise InputError(
                    f"{others[variant].directory}: {split} is not that of {base.directory}; compare runs on one corpus"
                )
        systems = {variant: columns["translation"] for variant, columns in texts.items()}
        for variant, p in paired_bootstrap(own["reference"], own["translation"], systems, samples).items():
            [bleu] = _values([others[variant]], split, "bleu")
            compared[variant].append((p, bleu, standard.bleu))
    worst = {variant: max(p for p, _, _ in seeds) for variant, seeds in compared.items()}
    adjusted = holm({variant: min(1.0, 2 * p) for variant, p in worst.items()})
    cells = {}
    for variant in suite.variants:
        bleus, chrfs = (_values(suite.of(variant), split, name) for name in ("bleu", "chrf"))
        differences = [own - base for _, own, base in compared[variant]]
        if bleus:
            cells[variant] = Cell(
                statistics.fmean(bleus),
                _deviation(bleus),
                _mean(chrfs),
                _deviation(chrfs),
                baseline=_mean([base for _, _, base in compared[variant]]),
                difference=_mean(differences),
                lowest=min(differences, default=None),
                highest=max(differences, default=None),
                p=worst.get(variant),
                p_holm=adjusted.get(variant),
            )
    return cells


def _verdict(runs: Sequence[Run], baseline: Mapping[int, Run], cell: Cell | None, first: str) -> str:
    """Returns the verdict on a variant from its runs and its cell of the first test split."""
    outcomes = Counter(filter(None, (_failure(run, first) for run in runs)))
    said = [f"{count} of {len(runs)} {outcome}" for outcome, count in outcomes.items()]
    if runs[0] is baseline.get(runs[0].seed):
        return "; ".join([BASELINE, *said])
    if outcomes.total() == len(runs):
        return next(iter(outcomes)) if len(outcomes) == 1 else "; ".join(said)
    if cell is None or cell.lowest is None or cell.highest is None or cell.p_holm is None:
        return "; ".join(["not compared", *said])
    significant = cell.p_holm < ALPHA
    verdict = WORSE if significant and cell.highest < 0 else BETTER if significant and cell.lowest > 0 else AS_GOOD
    if verdict == AS_GOOD:
        if said:
            return "; ".join(said)  # a failed run is no evidence of equality
        said = ["seeds disagree"] * (significant and cell.lowest < 0 < cell.highest)
    alone = sum(run.metrics is not None for run in runs if (base := baseline.get(run.seed)) is None or base.metrics is None)
    return "; ".join([verdict, *said, *[f"{alone} of {len(runs)} without a baseline of their seed"] * bool(alone)])


def _failure(run: Run, first: str) -> str:
    """Returns what went wrong with a run; nothing where all is well. first: the first test split."""
    if run.metrics is None:
        return run.state if run.state in FAILED else "not finished" if run.config else "not trained"
    scores = run.scores(first)
    if scores is None or scores.nll is None:
        return ""
    unigram = run.training.unigram_nll if run.training else None
    pieces = OmegaConf.select(OmegaConf.create(run.config), "data.tokenizer.vocab_size")  # None where a step is missing
    even = math.log(pieces) if isinstance(pieces, int) and pieces > 0 else unigram + 2 if unigram else math.inf
    if not math.isfinite(scores.nll) or scores.nll > even + 1:
        return "diverged"
    stuck = scores.nll >= PLATEAU * unigram if unigram else scores.bleu < 1
    return "never left the plateau" if stuck else ""


def _steps(finished: Sequence[Run], baseline: Mapping[int, Run]) -> float | None:
    """The mean over seeds; None where one never gets there."""
    reached = []
    for run in finished:
        goal = max((v for _, v in baseline[run.seed].curves.get("valid/bleu", []) if math.isfinite(v)), default=None)
        if goal is not None:
            reached.append(next((step for step, v in run.curves.get("valid/bleu", []) if v >= REACHED * goal), None))
    return None if None in reached else _mean([step for step in reached if step is not None])


def _speed(run: Run) -> float | None:
    """The median of what was measured during training, since a machine has other work at times; else the run's last figure."""
    measured = [value for _, value in run.curves.get("train/tokens_per_second", []) if value > 0]
    return statistics.median(measured) if measured else run.training.tokens_per_second if run.training else None


def _values(runs: Iterable[Run], split: str, name: str) -> list[float]:
    """Returns a score of the runs that have it."""
    values = [getattr(scores, name) for run in runs if (scores := run.scores(split))]
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def number(value: float | None, digits: int = 2, sign: bool = False) -> str:
    """As tables show it, with a real minus; a dash where there is none."""
    if value is None:
        return "–"
    value = round(value, digits) + 0.0  # no minus before a zero
    return f"{value:{'+' * sign},.{digits}f}".replace("-", "−")


def chance(p: float | None) -> str:
    """A p value: below a thousandth the exact figure says nothing."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def spread(value: float | None, deviation: float | None) -> str:
    return number(value) + (f" ± {number(deviation)}" if deviation is not None else "")


def _compact(comparison: Comparison) -> list[list[str]]:
    """The headings and a line a variant, of what one reads first."""
    first, others = comparison.splits[:1], comparison.splits[1:]
    shorter = [split.removeprefix("test_") for split in others]
    lines = [["variant", "verdict", *(f"BLEU {split}" for split in first), "difference", "p (Holm)", *shorter]]
    lines[0] += ["NLL", "parameters", "tokens/s", f"steps to {REACHED:.0%}"]
    for row in comparison.rows:
        cells = [row.cells.get(split) for split in comparison.splits]
        bleu = [spread(cell.bleu, cell.bleu_sd) if cell else "–" for cell in cells]
        head = cells[0] if cells else None
        beside = [number(head.difference, sign=True), chance(head.p_holm)] if head else ["–", "–"]
        about = [number(row.nll, 3), number(row.parameters, 0), number(row.tokens_per_second, 0), number(row.steps, 0)]
        lines.append([row.variant, row.verdict, *bleu[:1], *beside, *bleu[1:], *about])
    return lines


def terminal(comparison: Comparison, width: int) -> Table:
    """Of all columns, or where these are wider, of the first five; the files have the rest."""
    headings, *lines = _compact(comparison)
    for columns in (len(headings), 5):
        table = Table(title=escape.line(comparison.name))
        for i, heading in enumerate(headings[:columns]):
            table.add_column(heading, justify="right" if i > 1 else "left", no_wrap=True)
        for line in lines:
            table.add_row(*map(escape.line, line[:columns]))
        if Console(width=1000).measure(table).maximum <= width:
            break
    return table


def markdown(comparison: Comparison) -> str:
    headings, *lines = [[escape.markdown(cell) for cell in line] for line in _compact(comparison)]
    table = markdown_table(headings, [[_code(line[0]), *line[1:]] for line in lines], left=2)
    notes = "\n".join(f"- {escape.markdown(note)}" for note in comparison.notes)
    return f"# {escape.markdown(comparison.name)}\n\n{table}\n\n{notes}\n"


def _code(escaped: str) -> str:
    """In the letters of code, where nothing in it had to be escaped: code has no escapes."""
    return escaped if "&#" in escaped else f"`{escaped}`"


def csv(comparison: Comparison) -> str:
    """Every number, as precise as it is; a line a variant, empty where there is none."""
    lines: list[dict[str, Any]] = []
    for row in comparison.rows:
        line = {name: value for name, value in asdict(row).items() if name not in ("cells", "again", "about", "proof")}
        line["differs"] = ", ".join(row.proof)
        for split, cell in row.cells.items():
            line |= {f"{split} {name}": value for name, value in asdict(cell).items()}
        line |= {f"{split} bleu": value for split, value in row.again.items()}
        lines.append({str(escape.cell(name)): escape.cell(value) for name, value in line.items()})
    out = io.StringIO()
    writer = csv_format.DictWriter(out, list(dict.fromkeys(chain.from_iterable(lines))), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()
