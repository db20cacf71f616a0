"""A plot as SVG of the tokens that each way takes, by the number of tools."""

from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.economics.results import Economics
from benchmarks.economics.tasks import LOOP, ONE_CALL, Way
from benchmarks.performance import plots

#: Colors of ways, in a light and a dark scheme, in addition to those of all plots.
LIGHT = plots.LIGHT | {"JSON tools": "#57606b", "tool search": "#bc4c01"}
DARK = plots.DARK | {"JSON tools": "#adbac7", "tool search": "#db6d28"}

#: The name and the color of a line.
LINES: dict[Way, tuple[str, str]] = {
    "JSON tools": ("JSON tools", LIGHT["JSON tools"]),
    "tool search": ("tool search", LIGHT["tool search"]),
    "code": ("ipybox code", LIGHT["ipybox"]),
}

WIDTH = 8.6

#: Its annotations are partial.
_matplotlib: Any = matplotlib


def growth(data: Economics) -> str:
    """Return curves of the tokens by the number of tools, for a task where code wins and one where it may lose.

    Both axes are logarithmic. Each curve ends with its name and its last value.
    """
    with _matplotlib.rc_context({**plots.SETTINGS, "font.size": 12}):
        canvas: Any = Figure(figsize=(WIDTH, 4.0))
        FigureCanvasSVG(canvas)
        for task, title, left in ((LOOP, "loop over 30 repositories", 0.07), (ONE_CALL, "single short call", 0.57)):
            axes = canvas.add_axes((left, 0.15, 0.26, 0.73))
            axes.set_title(f"Tokens for a {title}", loc="left", fontsize=12.5, fontweight="bold", pad=10)
            for way, (name, color) in LINES.items():
                tokens = [data.find(task.name, way, count).total().tokens for count in data.counts]
                axes.plot(data.counts, tokens, marker="o", markersize=5, linewidth=2, color=color)
                label = f"{name} {tokens[-1] / 1000:.0f}k"
                place = {"xytext": (9, 0), "textcoords": "offset points", "va": "center"}
                axes.annotate(label, (data.counts[-1], tokens[-1]), color=color, **place)
            _scale(axes, data.counts)
        return plots.written(canvas, LIGHT, DARK)


def _scale(axes: Any, counts: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(700, 700_000)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter(FuncFormatter(_thousands))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_xlabel("number of tools")


def _thousands(value: float, _: object) -> str:
    return f"{value / 1000:,g}k"
