"""Draws how the time of a training step divides into parts: one stacked bar per contestant."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from benchmark.parts import OTHER, PARTS

COLORS = ("#1b4f72", "#2e86c1", "#85c1e9", "#d95f02", "#c9cfd4", "#7d8a96", "#59a14f", "#eeeeee")
MIN_LABELLED_SHARE = 0.06  # smaller shares have no room for a label


def picture(parts: Mapping[str, Mapping[str, float]]) -> Figure:
    """Returns the bar chart. `parts` has, for each contestant, the seconds that each of PARTS takes in a step."""
    figure = Figure(figsize=(9, 1.5 + 0.6 * len(parts)), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    left = np.zeros(len(parts))
    total = np.array([sum(one.values()) for one in parts.values()])
    for part, color in zip(PARTS, COLORS, strict=True):
        width = np.array([one.get(part, 0.0) for one in parts.values()])
        label = "Python, callbacks and other" if part == OTHER else part
        bars = axes.barh([*parts], width, left=left, height=0.6, color=color, edgecolor="white", label=label)
        shares = [f"{share:.0%}" if share > MIN_LABELLED_SHARE else "" for share in width / total]
        dark = part in ("products", "attention", "dropout", "optimiser", "data")
        axes.bar_label(bars, shares, label_type="center", fontsize=9, color="white" if dark else "#333333")
        left += width
    axes.invert_yaxis()
    axes.set_xlabel("seconds per training step, profiled")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    return figure
