"""The command `compare`: prints a comparison, and writes it as Markdown, as CSV and as a self-contained HTML page.

The prose and markup of the page are in page.html.j2. Its line charts are drawn here by matplotlib, as inline SVG.
"""

import csv as csv_format
import io
import math
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter
from rich.console import Console
from rich.table import Column, Table

from entente import files
from entente.ablation import comparison as verdicts
from entente.ablation.comparison import Compare, Comparison, Row, compare, has_failed
from entente.ablation.runs import DIAGNOSTICS, LOGARITHMIC, Run, Suite, read_runs, read_suite
from entente.config.schema import MISSING, to_text
from entente.console import escape
from entente.console.log import Task, start_log
from entente.errors import InputError

if TYPE_CHECKING:
    from entente.ablation.analysis import Analysis

# Mostly Okabe and Ito's colours, which colour-blind readers can tell apart.
COLORS = {verdicts.WORSE: "#d55e00", verdicts.STUCK: "#7a0c1e", verdicts.DIVERGED: "#cc79a7"}
COLORS |= {verdicts.BETTER: "#009e73", verdicts.AS_GOOD: "#56b4e9"}
PHRASES = {verdicts.AS_GOOD: "not shown to differ"}  # verdicts that the page's summary words differently
OTHER, GREY = "#333333", "#b5b5b5"
# Colours that the page's style sheet changes in dark mode.
VARIABLES = {"#000000": "currentColor", COLORS[verdicts.STUCK]: "var(--stuck)", OTHER: "var(--other)", GREY: "var(--grey)"}
SPINES = {"axes.spines.top": False, "axes.spines.right": False}
FONT = {"svg.fonttype": "none", "font.sans-serif": "DejaVu Sans", "font.size": 8, "axes.titlesize": 8}
CLEAR = {"figure.facecolor": "none", "axes.facecolor": "none"}
STYLE: dict[Any, Any] = {**FONT, "text.parse_math": False, **SPINES, **CLEAR}
# Attributes that matplotlib repeats for every group, tick and letter. The page's style sheet sets the styles once instead.
REPEATED = r"""(?<=<g) id="(?!curve-)[^"]*"|font-family:[^;]*; | transform="rotate\(-0 [^"]*"|; stroke-linecap: square"""
REPEATED += r"""| style="stroke: #000000; stroke-width: 0.\d"(?=/>)"""
SHOWN = 5  # number of columns of the main table that a terminal shows
WIDTH = 10.5  # inches; the width of a chart that spans the page
SVG_METADATA = dict(Date=None, Creator=None, Format=None, Type=None)  # no dates, so that pages are reproducible, and no URLs

Points = Sequence[tuple[float, float]]
Lines = Sequence[tuple[Points, Any]]  # the points and colour of each line


def report(settings: Compare) -> None:
    """Writes a comparison as Markdown, CSV and HTML, and prints it."""
    places = [files.path_of(place) for place in ([settings.runs] if isinstance(settings.runs, str) else settings.runs)]
    suite = read_suite(places[0]) if len(places) == 1 else read_runs(places, files.path_of(settings.output_dir))
    folder = files.path_of(settings.output) if settings.output else suite.directory
    if suite.given and os.path.exists(folder / "suite.yaml"):
        raise InputError(f"output={folder}: this is a suite's folder, which keeps its own comparison; give another folder")
    console = Console(width=None if sys.stdout.isatty() else 250, markup=False, emoji=False)  # so that piped tables do not wrap
    start_log()
    with Task(f"comparing {len(suite.runs)} runs with {settings.samples:,} bootstrap samples"):
        comparison = compare(suite, settings.samples)
    for table in terminal(comparison, suite):
        console.print(table)
    analysis = None
    if suite.given and comparison.splits and len(suite.runs) == len(suite.settings.variants) == 2:
        with Task("comparing the errors of both runs, and counting the words of the training text"):
            from entente.ablation import analysis as errors  # imports torch, which takes seconds

            analysis = errors.analyse(suite, comparison.splits[0], settings.trust_data)
        errors.show(analysis, console)
    with Task("drawing the page"):
        forms = {"md": markdown(comparison), "csv": csv(comparison), "html": page(comparison, suite, analysis)}
    with files.writable(f"output={folder}", "folder"):
        for ending, text in forms.items():
            files.write_text(folder / f"comparison.{ending}", text)
    print(folder / "comparison.html")


def number(value: float | None, digits: int = 2, sign: bool = False) -> str:
    """Formats a number for a table, with a real minus sign; returns a dash for None."""
    if value is None:
        return "–"
    value = round(value, digits) + 0.0  # turns -0.0 into 0.0
    return f"{value:{'+' * sign},.{digits}f}".replace("-", "−")


def format_p(p: float | None) -> str:
    """Formats a p value for a table. Values below 0.001 are shown as "< 0.001", since their digits would mean little."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def spread(value: float | None, deviation: float | None) -> str:
    return number(value) + (f" ± {number(deviation)}" if deviation is not None else "")


def color(verdict: str) -> str:
    return COLORS.get(verdict.partition(";")[0], OTHER)


LOADER, ESCAPED = FileSystemLoader(Path(__file__).parent), select_autoescape(["html.j2"])
TEMPLATES = Environment(loader=LOADER, autoescape=ESCAPED, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
TEMPLATES.globals |= {"number": number, "format_p": format_p, "spread": spread, "reached": verdicts.REACHED}
TEMPLATES.globals["color"] = lambda verdict: VARIABLES.get(color(verdict), color(verdict))


def notes(comparison: Comparison) -> list[str]:
    """Returns the notes on how the numbers were computed, each as one line."""
    return TEMPLATES.get_template("notes.j2").render(vars(comparison), alpha=verdicts.ALPHA).splitlines()


def _table(comparison: Comparison) -> list[list[str]]:
    """Returns the table of main results: the headings, then one line per variant."""
    first = comparison.splits[0] if comparison.splits else ""
    scores = [f"BLEU {first}" if split == first else split.removeprefix("test_") for split in comparison.splits]
    heading = ["variant", "verdict", *scores[:1], "difference", "p (Holm)", *scores[1:]]
    lines = [[*heading, "NLL", "parameters", "tokens/s", f"steps to {verdicts.REACHED:.0%}"]]
    for row in comparison.rows:
        bleu = [spread(row[f"{split} bleu"], row[f"{split} bleu_sd"]) for split in comparison.splits]
        compared = [number(row.get(f"{first} difference"), sign=True), format_p(row.get(f"{first} p_holm"))]
        others = [number(row[name], 0) for name in ("parameters", "tokens_per_second", "steps")]
        lines.append([row["variant"], row["verdict"], *bleu[:1], *compared, *bleu[1:], number(row["nll"], 3), *others])
    return lines


def terminal(comparison: Comparison, suite: Suite) -> Iterator[Table | str]:
    """Yields the tables and lines to print: the settings that differ (unless a suite was given), then the first
    columns of the main results, which fit a narrow terminal."""
    if found := _differences(suite):
        table = Table(*map(escape.line, ("setting", *suite.settings.variants)), title="Settings that differ")
        for line in found:
            table.add_row(*map(escape.line, line))
        yield table
        yield from (f"warning: {escape.line(warning)}" for warning in suite.warnings())
    headings, *lines = _table(comparison)
    columns = [Column(name, justify="right" if i > 1 else "left", no_wrap=i != 1) for i, name in enumerate(headings[:SHOWN])]
    table = Table(*columns, title=escape.line(comparison.name))
    for line in lines:
        table.add_row(*map(escape.line, line[:SHOWN]))
    yield table
    yield f"comparison.html, .md and .csv also have {escape.line(', '.join(headings[SHOWN:]))}."


def _differences(suite: Suite) -> list[list[str]]:
    """Returns a row for each setting that differs: its name, then its value in each variant. A suite gets no rows."""
    found = suite.differences() if suite.given else {}
    return [[key, *("–" if value == MISSING else to_text(value) for value in values)] for key, values in found.items()]


def markdown(comparison: Comparison) -> str:
    headings, *lines = [[escape.markdown(cell) for cell in line] for line in _table(comparison)]
    for line in lines:
        if "&#" not in line[0]:  # Markdown decodes no HTML entities inside code
            line[0] = f"`{line[0]}`"
    said = "\n".join(f"- {escape.markdown(note)}" for note in notes(comparison))
    return f"# {escape.markdown(comparison.name)}\n\n{escape.table(headings, lines, left=2)}\n\n{said}\n"


def csv(comparison: Comparison) -> str:
    """Returns all numbers in full precision as CSV, one line per variant. The cell of a missing number is empty."""
    rows = [comparison.rows[0], *(row.values() for row in comparison.rows)]  # a row's keys are the headings
    out = io.StringIO()
    csv_format.writer(out, lineterminator="\n").writerows(map(escape.cell, row) for row in rows)
    return out.getvalue()


def page(comparison: Comparison, suite: Suite, analysis: "Analysis | None" = None) -> str:
    """Returns the whole HTML file."""
    lengths = [split for split in comparison.splits if split in (comparison.splits[0], "test_long")]
    panels = partial(_panels, comparison, suite)
    difference = f"{comparison.splits[0]} difference" if comparison.splits else ""

    def learning(run: Run) -> list[Points]:
        return [run.by_minutes("valid/bleu") if suite.given else run.history.get("valid/bleu", [])]

    with matplotlib.rc_context(STYLE):
        return TEMPLATES.get_template("page.html.j2").render(
            comparison=comparison,
            suite=suite,
            analysis=analysis,
            differences=_differences(suite),
            summary=summary(comparison),
            notes=notes(comparison),
            learning=panels(learning, "minutes" if suite.given else "step", "validation BLEU", "curve"),
            by_harm=sorted(comparison.rows[1:], key=lambda row: (row.get(difference) is None, row.get(difference) or 0.0)),
            proofs={run.variant: run.proof for run in reversed(suite.runs) if run.proof.differs},
            lengths=lengths,
            length=panels(lambda run: [_by_length(run, split) for split in lengths], "words of the source", "BLEU"),
            why={row["variant"]: _why(row, comparison, suite) for row in comparison.rows if has_failed(row, comparison.splits)},
        )


def summary(comparison: Comparison) -> str:
    """Returns sentences that state how many variants have each verdict, and the range of differences from the baseline."""
    base, *others = comparison.rows
    split = next(iter(comparison.splits), "")
    known = sorted(
        (row for row in others if split and row[f"{split} difference"] is not None), key=lambda r: r[f"{split} difference"]
    )

    def difference(row: Row) -> str:
        return f"{number(row[f'{split} difference'], 1, sign=True)} BLEU ({row['variant']})"

    text = f"{base['variant']} has BLEU {number(base[f'{split} bleu'], 1)} on {split}. " if split else ""
    if len(others) == 1:
        row = others[0]
        score = f" differs from it by {number(row[f'{split} difference'], 1, sign=True)}" if known else ""
        return f"{text}{row['variant']}{score}: {row['verdict']}."
    verdict_counts = Counter(row["verdict"].partition(";")[0] for row in others).most_common()
    counted = ", ".join(f"{count} {PHRASES.get(verdict, verdict)}" for verdict, count in verdict_counts)
    if len(verdict_counts) == 1:
        counted = "the same for all, " + counted.partition(" ")[2]
    text += f"Verdicts on the other {len(others)}: {counted}." if others else "There is nothing to compare it with."
    ends = f" Differences range from {difference(known[0])} to {difference(known[-1])}." if known else ""
    return text + ends


def _by_length(run: Run, split: str) -> Points:
    """Returns a point (length, BLEU) for each range of source lengths, at its middle: 8 for "6-10", 51 for "51+"."""
    buckets = run.metrics[split].bleu_by_source_length if split in run.metrics else []
    ends = [[int(end) for end in re.findall(r"\d+", bucket.words)] for bucket in buckets]
    return [(sum(pair) / len(pair), bucket.bleu) for pair, bucket in zip(ends, buckets, strict=True)]


def _panels(
    comparison: Comparison, suite: Suite, curves: Callable[[Run], Sequence[Points]], x: str, y: str, link: str = ""
) -> Markup:
    """Draws a panel per variant, with the lines of the variant's runs in colour and the baseline's in grey. curves: returns a
    run's lines. link: prefix of the panels' ids, if they need ids; the panel for row N of the comparison gets the id LINK-N."""
    colors = {row["variant"]: color(row["verdict"]) for row in comparison.rows}
    drawn = {variant: [curve for run in suite.of(variant) for curve in curves(run) if curve] for variant in colors}
    baseline, *others = drawn
    shown = [variant for variant in others if drawn[variant]] or [baseline] * bool(drawn[baseline])
    if not shown:
        return Markup()
    grey = [(points, GREY) for points in drawn[baseline]]
    panels = {variant: [*grey, *((points, colors[variant]) for points in drawn[variant])] for variant in shown}
    figure, grid = _grid(panels, 5, 1.55, x, y)
    grid[0].set_ylim(-3, 103)
    if link:
        for axes, variant in zip(grid, panels, strict=True):
            axes.set_gid(f"{link}-{[*colors].index(variant)}")
    return _svg(figure, y + x)


def _why(row: Row, comparison: Comparison, suite: Suite) -> Markup:
    """Draws a panel for each aspect that was measured in the variant's worst run. Each panel has a line per part of the model,
    and the range of the baseline's lines in grey."""
    measured = [run for run in suite.of(row["variant"]) if any(run.measured(aspect) for aspect in DIAGNOSTICS)]
    if not measured:
        return Markup()
    splits = comparison.splits
    worst = min(measured, key=lambda run: next((run.metrics[split].bleu for split in splits if split in run.metrics), -1.0))
    baseline = suite.base_of(worst)
    aspects = {aspect: lines for aspect in DIAGNOSTICS if (lines := worst.measured(aspect))}
    places = list(dict.fromkeys(place for lines in aspects.values() for place in lines))
    scale = np.linspace(0.07, 0.93, len(places))  # leaves out the dark shades at both ends of the colour map
    shades = dict(zip(places, colormaps["turbo"](scale), strict=True))
    panels = {
        aspect.replace("_", " "): [(points, shades[place]) for place, points in lines.items()]
        for aspect, lines in aspects.items()
    }
    figure, grid = _grid(panels, 3, max(1.9, 0.12 * len(places) / math.ceil(len(aspects) / 3)), "step")
    for axes, aspect in zip(grid, aspects, strict=True):
        values = defaultdict(list)
        for step, value in chain.from_iterable(baseline.measured(aspect).values()):
            values[step].append(value)
        axes.fill_between([*values], [*map(min, values.values())], [*map(max, values.values())], color=GREY, clip_on=False)
        if aspect in LOGARITHMIC:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(LogFormatter())  # the default formatter writes TeX, which HTML does not render
            axes.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1, 0.4)))
    handles = [Line2D([], [], color=shade, linewidth=1) for shade in shades.values()]
    figure.legend(handles, places, loc="outside right center", fontsize=6, frameon=False, handlelength=1)
    return _svg(figure, worst.variant)


def _grid(panels: Mapping[str, Lines], most: int, height: float, x: str, y: str = "") -> tuple[Figure, list[Axes]]:
    """Returns a figure of titled panels, and its axes. most: maximum per row. height: inches per row. x, y: axis labels."""
    across = min(most, len(panels))
    down = math.ceil(len(panels) / across)
    figure = Figure((WIDTH, max(1.9, height * down)), layout="constrained")
    grid = list(figure.subplots(down, across, sharex=True, sharey=bool(y), squeeze=False).flat)
    for axes, (title, lines) in zip(grid, panels.items(), strict=False):
        axes.set_title(escape.line(title, 34), loc="left")
        for points, shade in lines:
            marker = "o" if len(points) < 10 else None  # show the points if there are too few for a line
            axes.plot(*zip(*points, strict=True), color=shade, linewidth=1, marker=marker, markersize=2, clip_on=False)
    for i in range(len(panels), len(grid)):
        grid[i].set_axis_off()
        grid[i - across].xaxis.set_tick_params(labelbottom=True)
    figure.supxlabel(x, fontsize=8)
    figure.supylabel(y, fontsize=8)
    return figure, grid[: len(panels)]


def _svg(figure: Figure, salt: str) -> Markup:
    """Returns the figure as SVG markup, with coordinates rounded to 0.1 points. salt: makes ids unique on a page."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": salt}):
        figure.savefig(out, format="svg", metadata=SVG_METADATA)
    text = re.sub(r"-?\d+\.\d{2,}(?=[^<>]*>)", lambda number: f"{float(number[0]):.1f}", out.getvalue())
    text = re.sub(r"\s*\n(L )?\s*", " ", text[text.index("<svg") :])
    text = re.sub(REPEATED, "", text).replace("> <", "><")
    for shade, variable in VARIABLES.items():
        text = text.replace(shade, variable)
    plain = re.compile(r"<g>((?:(?!</?g\b).)*)</g>")  # groups without attributes or nested groups
    while plain.search(text):
        text = plain.sub(r"\1", text)
    return Markup(text)
