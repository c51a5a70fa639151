"""Where the time of a training step goes, as a picture: a bar for each contestant, its parts end to end."""

from collections.abc import Mapping

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from entente.benchmark.parts import OTHER, PARTS

COLORS = ("#1b4f72", "#2e86c1", "#85c1e9", "#d95f02", "#c9cfd4", "#7d8a96", "#59a14f", "#eeeeee")
ENOUGH = 0.06  # share of the longest bar that has room for a number


def picture(parts: Mapping[str, Mapping[str, float]]) -> Figure:
    """parts: of each contestant, the seconds a step that each of PARTS took."""
    figure = Figure(figsize=(9, 1.5 + 0.6 * len(parts)), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    longest = max(sum(one.values()) for one in parts.values())
    for row, one in enumerate(parts.values()):
        left = 0.0
        for part, color in zip(PARTS, COLORS, strict=True):
            width = one.get(part, 0.0)
            axes.barh(row, width, left=left, height=0.6, color=color, edgecolor="white", linewidth=0.8)
            if width > ENOUGH * longest:
                dark = part in ("products", "attention", "dropout", "optimiser", "data")
                share = f"{width / sum(one.values()):.0%}"
                axes.text(
                    left + width / 2, row, share, ha="center", va="center", fontsize=9, color="white" if dark else "#333333"
                )
            left += width
    axes.set_yticks(range(len(parts)), list(parts))
    axes.invert_yaxis()
    axes.set_xlabel("seconds a training step, profiled")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    handles = [Patch(color=color) for color in COLORS]
    names = ["Python, callbacks and other" if part == OTHER else part for part in PARTS]
    figure.legend(handles, names, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    return figure
