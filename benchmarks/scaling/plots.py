"""A plot of a few lines as SVG, which follows the reader's choice between a light and a dark scheme."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from benchmarks.performance.plots import DARK, LIGHT, SETTINGS, written

#: Its annotations are partial.
_matplotlib: Any = matplotlib


@dataclass(frozen=True)
class Line:
    """A line: its name, the name of its color, and its points."""

    name: str
    color: str
    points: Sequence[tuple[float, float]]


def plot(title: str, over: str, lines: Sequence[Line]) -> str:
    """Returns a plot as SVG; the same lines give the same text."""
    with _matplotlib.rc_context(SETTINGS):
        canvas: Any = Figure(figsize=(8.6, 3.2))
        FigureCanvasSVG(canvas)
        axes = canvas.add_axes((0.09, 0.16, 0.86, 0.72))
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_xlabel(over)
        axes.spines[["top", "right"]].set_visible(False)
        for line in lines:
            axes.plot(
                *zip(*line.points, strict=True), marker="o", markersize=4, color=LIGHT[line.color], label=line.name
            )
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False)
        return written(canvas, LIGHT, DARK)
