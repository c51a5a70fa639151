"""What bursts say: rates, their median and spread, and the ratio of ours to another, pair by pair.

A ratio above 1 is in our favour: we do more in a second. Each pair's two bursts ran one right after the other and did the same
work, so that their ratio holds where the machine's speed does not; reported is the median of these ratios, with the least and
the largest.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from entente.benchmark.turns import OURS, Measured


@dataclass(frozen=True)
class Spread:
    """Of several bursts."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Row:
    """One contestant in one case. figure: in the case's unit. ratio: ours to it, none for ours itself. overall: all it did over
    all its seconds, so that what comes once in many steps is in it."""

    case: str
    contestant: str
    figure: Spread
    ratio: Spread | None
    overall: float
    peak_mb: float | None
    note: str = ""


@dataclass(frozen=True)
class Result:
    """One case. unit: of its figures. left_out: of whom nothing is known, and why."""

    case: str
    unit: str
    rows: list[Row]
    left_out: dict[str, str]
    raw: dict[str, Any]


def rates(bursts: Sequence[Mapping[str, Any]], units: str) -> list[float]:
    """A second's worth; units: what of a burst's answer is counted."""
    return [burst[units] / burst["seconds"] for burst in bursts]


def ratios(ours: Sequence[float], other: Sequence[float]) -> list[float]:
    return [one / another for one, another in zip(ours, other, strict=True)]


def of_case(
    case: str,
    unit: str,
    measured: Mapping[str, Measured],
    units: str = "tokens",
    notes: Mapping[str, str] | None = None,
    as_seconds: bool = False,
) -> Result:
    """as_seconds: what is shown is seconds, not how much in one."""
    there = {name: one for name, one in measured.items() if one.bursts and not one.left_out}
    speed = {
        name: [1 / b["seconds"] for b in one.bursts] if as_seconds else rates(one.bursts, units) for name, one in there.items()
    }
    rows = []
    for name, one in there.items():
        seconds = sum(burst["seconds"] for burst in one.bursts)
        shown = [burst["seconds"] for burst in one.bursts] if as_seconds else speed[name]
        total = seconds / len(one.bursts) if as_seconds else sum(burst[units] for burst in one.bursts) / seconds
        ratio = Spread.of(ratios(speed[OURS], speed[name])) if name != OURS and OURS in speed else None
        peak = max((burst["peak_mb"] for burst in one.bursts if "peak_mb" in burst), default=None)
        rows.append(Row(case, name, Spread.of(shown), ratio, total, peak, (notes or {}).get(name, "")))
    raw = {name: {"about": one.about, "warm_up": one.warm_up, "bursts": one.bursts} for name, one in there.items()}
    return Result(case, unit, rows, {name: one.left_out for name, one in measured.items() if one.left_out}, raw)


def share_of_ceiling(
    flops: Sequence[int], ours: Sequence[Mapping[str, Any]], ceiling: Sequence[Mapping[str, Any]]
) -> list[float]:
    """Of each burst: operations counted, over its seconds, over what the ceiling's burst beside it could do in one."""
    return [
        count / burst["seconds"] / (beside["gflops"] * 1e9) for count, burst, beside in zip(flops, ours, ceiling, strict=True)
    ]
