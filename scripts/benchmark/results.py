"""Summarises the timed measurements (bursts): the median and range of each program's speed, and of the speed ratio
Entente / program.

A ratio above 1 means that Entente is faster. Each ratio compares two bursts of the same round, which do the same work shortly
after each other, so it is meaningful even if the speed of the machine varies.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmark.turns import OURS, Measured


@dataclass(frozen=True)
class Spread:
    """The median and range of values that were measured in several bursts."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Row:
    """A contestant's row: its figure in the unit of the case, and the ratio of our speed to its speed (None for ours)."""

    contestant: str
    figure: Spread
    ratio: Spread | None
    peak_mb: float | None
    note: str = ""


@dataclass(frozen=True)
class Result:
    """The result of one case. Each contestant that was measured has a row, with figures in `unit`, and its unprocessed answers
    in `raw`. `left_out` gives the reasons for the others."""

    case: str
    unit: str
    rows: list[Row]
    left_out: dict[str, str]
    raw: dict[str, Any]


def case_result(
    case: str, unit: str, measured: Mapping[str, Measured], count: str | None = "tokens", notes: Mapping[str, str] | None = None
) -> Result:
    """Returns the result of a case. `count` is a key of a burst's answer, such as "tokens": the figure of the burst is this
    value per second. If `count` is None, the figure is the burst's seconds."""
    there = {name: one for name, one in measured.items() if one.bursts}
    figures = {name: [b[count] / b["seconds"] if count else b["seconds"] for b in one.bursts] for name, one in there.items()}
    rows = []
    for name, one in there.items():
        pair = (figures[OURS], figures[name]) if count else (figures[name], figures[OURS])
        ratio = Spread.of([a / b for a, b in zip(*pair, strict=True)]) if name != OURS else None
        peak = max((burst["peak_mb"] for burst in one.bursts if "peak_mb" in burst), default=None)
        rows.append(Row(name, Spread.of(figures[name]), ratio, peak, (notes or {}).get(name, "")))
    raw = {name: {"about": one.about, "warm_up": one.warm_up, "bursts": one.bursts} for name, one in there.items()}
    return Result(case, unit, rows, {name: one.left_out for name, one in measured.items() if one.left_out}, raw)
