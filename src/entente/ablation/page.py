"""One HTML file that shows what each variant of a suite is worth. It needs nothing beside it: charts are SVG in its text."""

import io
import math
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter
from rich.console import Console

from entente.ablation.comparison import (
    AS_GOOD,
    BASELINE,
    BETTER,
    REACHED,
    WORSE,
    Comparison,
    Row,
    chance,
    compare,
    csv,
    markdown,
    number,
    spread,
    terminal,
)
from entente.ablation.runs import Run, Suite, publish, read_suite
from entente.errors import InputError
from entente.files.reading import path_of
from entente.files.writing import write_text

# Okabe and Ito's colours, which the colour-blind can tell apart too.
COLORS = {WORSE: "#d55e00", "never left the plateau": "#7a0c1e", "diverged": "#cc79a7", BETTER: "#009e73", AS_GOOD: "#56b4e9"}
OTHER, GREY = "#333333", "#b5b5b5"
STACKS = ("Blues", "Oranges", "Greens", "Purples")  # of lines: one a stack (encoder, decoder, ...), darker with depth
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,
}
WIDTH = 10.5  # inches, of a chart across the page
SHAKE = dict(Date=None, Creator=None, Format=None, Type=None)  # the same page each time, and no addresses in it
ASPECTS = {  # of why/ASPECT/PLACE: heading, what it means, whether its axis is logarithmic
    "gradient_norm": ("Norm of the gradient", "Near 0: what is learnt does not get there. Growing: training blows up.", True),
    "update_ratio": (
        "Norm of a sublayer's output over that of its input",
        "How much a sublayer changes the stream. Far below 1: little; far above 1: it drowns what came before.",
        False,
    ),
    "update_cosine": (
        "Cosine of a sublayer's output and its input",
        "1: it repeats its input; 0: it says something new; below 0: it takes away.",
        False,
    ),
    "position_cosine": (
        "Mean cosine between positions",
        "1: every position holds the same vector (rank collapse), so no word can be told from another.",
        False,
    ),
    "attention_entropy": (
        "Entropy of attention, as a share of its maximum",
        "1: looks everywhere alike, so nowhere; 0: looks at a single piece.",
        False,
    ),
    "score_variance": (
        "Variance of attention scores before softmax",
        "Near 0: attention is even; large: softmax is saturated and lets hardly any gradient through.",
        True,
    ),
}
Line = tuple[Sequence[float], Sequence[float]]


def report(config: Mapping[str, Any]) -> None:
    """Writes the comparison of a suite in three forms and prints it; publishes the suite where `publish` is a folder."""
    suite = read_suite(path_of(config["suite"]))
    comparison = compare(suite, config["samples"])
    output = path_of(config["output"]) if config["output"] else suite.directory
    forms = {"md": markdown(comparison), "csv": csv(comparison), "html": page(comparison, suite)}
    folders = {"output": output}
    if config["publish"]:
        folders["publish"] = path_of(config["publish"])
        publish(suite, folders["publish"])
    for key, folder in folders.items():
        try:
            for ending, text in forms.items():
                write_text(folder / f"comparison.{ending}", text)
        except OSError as error:
            raise InputError(f"{key}={folder}: cannot be written ({error.strerror or error}); give another folder") from error
    console = Console(width=None if sys.stdout.isatty() else 250, markup=False, emoji=False)  # a pipe has room
    console.print(terminal(comparison, console.width))
    print(output / "comparison.html")


def page(comparison: Comparison, suite: Suite) -> str:
    """The whole file as text."""
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    failed = [row for row in comparison.rows if row.failed]
    lengths = [split for split in comparison.splits if split in (comparison.splits[0], "test_long")]
    with matplotlib.rc_context(STYLE):
        return environment.get_template("page.html.j2").render(
            comparison=comparison,
            headlines=_headlines(comparison, suite),
            bars=_bars(comparison),
            verdicts=dict.fromkeys(row.verdict.partition(";")[0] for row in comparison.rows[1:]),
            learning=_panels(comparison, suite, _learning_curve, "step", "validation BLEU"),
            lengths=lengths,
            length=_panels(comparison, suite, lambda run: _by_length(run, lengths), "words of the source", "BLEU"),
            why={row.variant: _why(row, suite, comparison.splits[0] if comparison.splits else "") for row in failed},
            messages={row.variant: _messages(row, suite) for row in comparison.rows},
            color=_color,
            reached=REACHED,
            number=number,
            chance=chance,
            spread=spread,
        )


def _headlines(comparison: Comparison, suite: Suite) -> list[tuple[str, str]]:
    """Variant and sentence of each result worth a line, the greatest harm first; those without a result last."""
    first = comparison.splits[0] if comparison.splits else ""
    lines = []
    if comparison.rows[0].verdict != BASELINE:
        lines.append(("", f"The baseline itself failed ({comparison.rows[0].verdict}): what the others differ by says little."))
    for row in _by_harm(comparison):
        cell = row.cells.get(first)
        if row.verdict == AS_GOOD:
            continue
        if cell and cell.difference is not None and cell.baseline is not None:
            own, base = number(cell.baseline + cell.difference, 1), number(cell.baseline, 1)
            beside = f"BLEU {own} where the baseline has {base} ({number(cell.difference, 1, sign=True)}): "
            lines.append((row.variant, beside + row.verdict))
        else:
            lines.append((row.variant, ": ".join([row.verdict, *_messages(row, suite)[:1]])))
    equals = [row.variant for row in comparison.rows if row.verdict == AS_GOOD]
    return lines + [("", f"No difference to the baseline shown: {', '.join(equals)}.")] * bool(equals)


def _by_harm(comparison: Comparison) -> list[Row]:
    """All but the baseline."""
    first = comparison.splits[0] if comparison.splits else ""

    def harm(row: Row) -> float:
        cell = row.cells.get(first)
        return math.inf if cell is None or cell.difference is None else cell.difference

    return sorted(comparison.rows[1:], key=harm)


def _messages(row: Row, suite: Suite) -> list[str]:
    """What is known of the runs that did not finish."""
    return [f"seed {run.seed}: {run.message}" for run in suite.of(row.variant) if run.metrics is None and run.message]


def _color(verdict: str) -> str:
    return COLORS.get(verdict.partition(";")[0], OTHER)


def _bars(comparison: Comparison) -> Markup:
    """The difference in BLEU on the first test split, a bar a variant; the line on it spans the seeds."""
    rows = _by_harm(comparison)[::-1]
    if not comparison.splits or not rows:
        return Markup()
    first = comparison.splits[0]
    figure = Figure((WIDTH, 0.9 + 0.24 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for y, row in enumerate(rows):
        cell = row.cells.get(first)
        if cell is None or cell.difference is None or cell.lowest is None or cell.highest is None:
            axes.annotate(row.verdict, (0, y), (-4, 0), textcoords="offset points", ha="right", va="center", color=OTHER)
            continue
        axes.barh(y, cell.difference, color=_color(row.verdict), height=0.72)
        if cell.lowest < cell.highest:
            axes.plot([cell.lowest, cell.highest], [y, y], color="black", linewidth=1, marker="|", markersize=5)
        right = cell.difference > 0
        end, text = (max if right else min)(0.0, cell.lowest, cell.highest), number(cell.difference, 1, sign=True)
        side = "left" if right else "right"
        axes.annotate(text, (end, y), (4 if right else -4, 0), textcoords="offset points", ha=side, va="center")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [row.variant for row in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.margins(x=0.08)
    base = comparison.rows[0].cells.get(first)
    axes.set_xlabel(f"BLEU on {first}, less the baseline's" + (f" {number(base.bleu, 1)}" if base else ""))
    return _svg(figure, "bars")


def _learning_curve(run: Run) -> list[Line]:
    return [tuple(zip(*points, strict=True)) for points in [run.curves.get("valid/bleu")] if points]  # type: ignore[misc]


def _by_length(run: Run, splits: Sequence[str]) -> list[Line]:
    """A line a split, over the middle of each range of lengths."""
    scores = [run.metrics[split].bleu_by_source_length for split in splits if run.metrics and split in run.metrics]
    return [([_middle(one.words) for one in buckets], [one.bleu for one in buckets]) for buckets in scores if buckets]


def _middle(words: str) -> float:
    """Of "6-10", 8; of "51+", 51."""
    ends = [int(end) for end in re.findall(r"\d+", words)]
    return sum(ends) / len(ends)


def _panels(comparison: Comparison, suite: Suite, lines: Callable[[Run], list[Line]], x: str, y: str) -> Markup:
    """A panel a variant on the same axes, a line a seed, the baseline in grey."""
    drawn = {variant: [line for run in suite.of(variant) for line in lines(run)] for variant in suite.variants}
    rows = [row for row in comparison.rows[1:] if drawn[row.variant]] or [row for row in comparison.rows if drawn[row.variant]]
    if not rows:
        return Markup()
    across = min(5, len(rows))
    down = math.ceil(len(rows) / across)
    figure = Figure((WIDTH, 0.4 + 1.45 * down), layout="constrained")
    grid = list(figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).flat)
    for i, axes in enumerate(grid):
        if i >= len(rows):
            axes.set_axis_off()
            grid[i - across].xaxis.set_tick_params(labelbottom=True)
            continue
        variant = rows[i].variant
        few = _marks(drawn[variant][0][0])
        for name, color in ((suite.variants[0], GREY), (variant, _color(rows[i].verdict))):
            for xs, ys in drawn[name]:
                axes.plot(xs, ys, color=color, linewidth=1, **few)
        axes.set_title(textwrap.shorten(variant, 34), loc="left")
        axes.set_ylim(-3, 103)
    figure.supxlabel(x, fontsize=8)
    figure.supylabel(y, fontsize=8)
    return _svg(figure, y + x)


def _why(row: Row, suite: Suite, first: str) -> list[tuple[str, str, Markup]]:
    """Of each aspect that was measured its heading, its meaning and a chart: of the seed that did worst on the split."""
    looked_into = [run for run in suite.of(row.variant) if any(tag.startswith("why/") for tag in run.curves)]
    if not looked_into:
        return []
    shown = min(looked_into, key=lambda run: run.metrics[first].bleu if run.metrics and first in run.metrics else -1.0)
    baseline = next(run for run in suite.of(suite.variants[0]) if run.seed == shown.seed)
    charts = []
    for aspect, (heading, meaning, logarithmic) in ASPECTS.items():
        sides = {f"{run.variant} (seed {run.seed})": _places(run, aspect, logarithmic) for run in (baseline, shown)}
        if any(_places(shown, aspect, logarithmic).values()):
            charts.append((heading, meaning, _side_by_side(sides, logarithmic, row.variant + aspect)))
    return charts


def _places(run: Run, aspect: str, logarithmic: bool) -> dict[str, list[tuple[int, float]]]:
    """The points that can be drawn of each place, places in the order of their numbers."""
    prefix = f"why/{aspect}/"
    lowest = 0.0 if logarithmic else -math.inf
    found = {tag.removeprefix(prefix): points for tag, points in run.curves.items() if tag.startswith(prefix)}
    order = sorted(found, key=lambda place: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", place)])
    return {place: [(step, value) for step, value in found[place] if lowest < value < math.inf] for place in order}


def _side_by_side(sides: Mapping[str, Mapping[str, list[tuple[int, float]]]], logarithmic: bool, salt: str) -> Markup:
    places = list(dict.fromkeys(place for side in sides.values() for place in side))
    stacks: dict[str, list[str]] = {}
    for place in places:
        stacks.setdefault(re.split(r"[\W\d_]", place)[0], []).append(place)
    colors = {
        place: matplotlib.colormaps[STACKS[i % len(STACKS)]](0.4 + 0.55 * j / max(1, len(members) - 1))
        for i, members in enumerate(stacks.values())
        for j, place in enumerate(members)
    }
    figure = Figure((WIDTH / 2, max(1.9, 0.3 + 0.115 * len(places))), layout="constrained")
    grid = figure.subplots(1, len(sides), sharex=True, sharey=True, squeeze=False)
    handles = {}
    for axes, (title, side) in zip(grid.flat, sides.items(), strict=True):
        for place, points in side.items():
            if points:
                [handles[place]] = axes.plot(*zip(*points, strict=True), color=colors[place], linewidth=1.1, **_marks(points))
        axes.set_title(textwrap.shorten(title, 30), loc="left")
        axes.set_xlabel("step")
        if logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(LogFormatter())  # the usual one writes TeX, which a page shows as it stands
            axes.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1, 0.4)))
    order = [place for place in places if place in handles]
    beside: dict[str, Any] = {"loc": "outside right center", "fontsize": 6, "frameon": False, "handlelength": 1}
    figure.legend([handles[place] for place in order], order, **beside)
    return _svg(figure, salt)


def _marks(points: Sequence[object]) -> dict[str, Any]:
    """Of few points each is marked: a line through one is nothing."""
    return {"marker": "o", "markersize": 2} if len(points) < 10 else {}


def _svg(figure: Figure, salt: str) -> Markup:
    """As an element of HTML. salt: makes its identifiers unlike those of the page's other charts."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": salt}):
        figure.savefig(out, format="svg", metadata=SHAKE)
    text = out.getvalue()
    return Markup(text[text.index("<svg") :])
