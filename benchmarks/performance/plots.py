"""A plot as SVG of what ipybox and the peer take, relative to the floor.

Its text is text, and it follows the reader's choice between a light and a dark scheme.
"""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from benchmarks.figures import factor
from benchmarks.measurement import Side
from benchmarks.results import Row

#: Colors of a scheme, by name: those of the light one are in the file, those of the dark one replace them.
LIGHT = {"paper": "#fefefe", "ink": "#1f2328", "faint": "#59636e", "ipybox": "#0969da", "peer": "#bc4c00"}
DARK = {"paper": "#0d1117", "ink": "#e6edf3", "faint": "#9198a1", "ipybox": "#4493f8", "peer": "#db6d28"}

#: Its annotations are partial.
_matplotlib: Any = matplotlib

#: Inches: of the figure, of a row, and above and below the rows. Narrow, so that phones show readable text.
WIDTH, ROW, ABOVE, BELOW = 6.4, 0.215, 0.62, 0.55

#: Where the axis begins and ends, as parts of the width; descriptions stand before, ratios behind.
LEFT, RIGHT = 0.42, 0.9

NAMES: dict[Side, str] = {"ipybox": "ipybox", "peer": "ipybox 0.9.2"}

SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ipybox",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Helvetica", "Arial", "sans-serif"],
    "font.size": 9,
    "text.color": LIGHT["ink"],
    "axes.edgecolor": LIGHT["faint"],
    "axes.facecolor": "none",
    "axes.labelcolor": LIGHT["ink"],
    "xtick.color": LIGHT["faint"],
    "ytick.color": LIGHT["ink"],
    "figure.facecolor": LIGHT["paper"],
}


def plot(rows: Sequence[Row]) -> str:
    """Returns the plot as SVG; the same rows give the same text."""
    height = ABOVE + ROW * len(rows) + BELOW
    with _matplotlib.rc_context(SETTINGS):
        canvas: Any = Figure(figsize=(WIDTH, height))
        FigureCanvasSVG(canvas)
        axes = canvas.add_axes((LEFT, BELOW / height, RIGHT - LEFT, 1 - (ABOVE + BELOW) / height))
        _add_legend(canvas, height)
        _scale(axes, rows)
        for side in NAMES:
            points = [(ratio, number) for number, row in enumerate(rows) if (ratio := relative(row, side)) is not None]
            if points:
                axes.plot(*zip(*points, strict=True), "o", markersize=5, color=LIGHT[side])
        for number, row in enumerate(rows):
            place = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 8}
            axes.text(1.02, number, factor(relative(row, "ipybox")), color=LIGHT["ipybox"], **place)
        return written(canvas, LIGHT, DARK)


def relative(row: Row, side: Side) -> float | None:
    """Returns a side's time or memory, divided by that of the floor; None if one was not measured."""
    value, floor = row.median(side), row.median("floor")
    if not value or not floor:
        return None
    return floor / value if row.unit == "calls/s" else value / floor


def _add_legend(canvas: Any, height: float) -> None:
    y = 1 - 0.16 / height
    canvas.text(0.01, y, "Time or memory ÷ the same work without ipybox", va="center", fontweight="bold")
    for x, side in zip((0.01, 0.16), NAMES, strict=True):
        canvas.text(x, 1 - 0.38 / height, "●", color=LIGHT[side], va="center")
        canvas.text(x + 0.03, 1 - 0.38 / height, NAMES[side], va="center")


def _scale(axes: Any, rows: Sequence[Row]) -> None:
    axes.set_xscale("log")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [row.what for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.axvline(1, color=LIGHT["ink"], linewidth=1)
    axes.grid(axis="both", alpha=0.2)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g} ×"))
    axes.set_xlabel("ratio on a log scale; left of 1 × is less than without ipybox")


def written(canvas: Any, light: Mapping[str, str], dark: Mapping[str, str]) -> str:
    """Returns a figure as SVG, whose style sheet replaces the colors where the reader has chosen a dark scheme.

    Programs that know no style sheets show the light one.
    """
    text = io.StringIO()
    canvas.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    rules = [
        f'[style*="{attribute}: {light[name]}"]{{{attribute}:{dark[name]} !important}}'
        for name in light
        for attribute in ("fill", "stroke")
    ]
    style = f"<style>@media (prefers-color-scheme: dark){{{''.join(rules)}}}</style>"
    # What says where the file was made and by what is of no use to readers.
    svg = re.sub(r"<metadata>.*?</metadata>\n?", "", text.getvalue(), flags=re.DOTALL)
    svg = re.sub(r"[ \t]+\n", "\n", svg)
    return re.sub(r"(<svg[^>]*>)", rf"\g<1>\n {style}", svg, count=1)
