"""A plot of each group as SVG: bars of the medians, and curves below.

The text is text, and the plot follows the reader's choice between a light and a dark scheme.
"""

import io
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.figures import factor, figure
from benchmarks.measurement import Curve, Side
from benchmarks.results import Row

#: Colors of a scheme, by name: those of the light one are in the file, those of the dark one replace them.
LIGHT = {"paper": "#fefefe", "ink": "#1f2328", "faint": "#59636e", "floor": "#8c959f", "ipybox": "#0969da"}
DARK = {"paper": "#0d1117", "ink": "#e6edf3", "faint": "#9198a1", "floor": "#6e7681", "ipybox": "#4493f8"}
LIGHT["peer"], DARK["peer"] = "#bc4c00", "#db6d28"

#: Its annotations are partial.
_matplotlib: Any = matplotlib

SIDES: tuple[Side, ...] = ("floor", "ipybox", "peer")

#: Inches: of the figure, of a bar, between rows, of a curve's axes, and of the legend.
WIDTH = 8.6
BAR = 0.17
GAP = 0.2
CURVE = 2.3
LEGEND = 0.42
MARGIN = 0.62

#: Where bars begin and end, as parts of the width; descriptions stand before, figures behind.
LEFT, RIGHT = 0.34, 0.74

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
    "ytick.color": LIGHT["faint"],
    "figure.facecolor": LIGHT["paper"],
}


def plot(rows: Sequence[Row]) -> str:
    """Returns the plot of a group as SVG; the same rows give the same text."""
    curves = [curve for row in rows for curve in row.curves]
    with _matplotlib.rc_context(SETTINGS):
        bars = [len(_measured(row)) * BAR + GAP for row in rows]
        height = LEGEND + sum(bars) + len(curves) * (CURVE + MARGIN) + GAP
        canvas: Any = Figure(figsize=(WIDTH, height))
        FigureCanvasSVG(canvas)
        top = height - LEGEND
        _add_legend(canvas, _sides(rows), any(row.limits for row in rows), 1 - LEGEND / 2 / height)
        for row, tall in zip(rows, bars, strict=True):
            top -= tall
            _add_bars(canvas, row, (LEFT, (top + GAP / 2) / height, RIGHT - LEFT, (tall - GAP) / height))
        for curve in curves:
            top -= CURVE + MARGIN
            _add_curve(canvas, curve, (0.12, (top + MARGIN * 0.8) / height, 0.83, (CURVE - MARGIN * 0.4) / height))
        written = io.StringIO()
        canvas.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return _for_both_schemes(written.getvalue())


def _add_legend(canvas: Any, sides: Sequence[Side], targets: bool, y: float) -> None:
    entries = [*((side, "■", LIGHT[side]) for side in sides), *([("target", "|", LIGHT["ink"])] if targets else [])]
    for number, (name, symbol, color) in enumerate(entries):
        x = LEFT + 0.12 * number
        canvas.text(x, y, symbol, color=color, va="center")
        canvas.text(x + 0.022, y, name, va="center")


def _add_bars(canvas: Any, row: Row, place: tuple[float, float, float, float]) -> None:
    axes = canvas.add_axes(place)
    sides = _measured(row)
    values = [row.median(side) or 0.0 for side in sides]
    longest = max(values) or 1
    axes.barh(range(len(sides)), values, height=0.8, color=[LIGHT[side] for side in sides])
    axes.set_ylim(len(sides) - 0.5, -0.5)
    axes.set_xlim(0, longest)
    axes.axis("off")

    def write(text: str, x: float, y: float, shift: int, **options: Any) -> None:
        axes.annotate(text, (x, y), xytext=(shift, 0), textcoords="offset points", va="center", **options)

    limits = [limit.value for limit in row.limits if limit.value is not None and limit.value <= longest]
    write(row.what, 0, (len(sides) - 1) / 2, -8, ha="right")
    for number, (side, value) in enumerate(zip(sides, values, strict=True)):
        if side == "ipybox":
            axes.vlines(limits, number - 0.5, number + 0.5, color=LIGHT["ink"], linewidth=1.2)
            write(figure(value, row.unit), max([value, *limits]), number, 5, fontsize=8)
            continue
        write(figure(value, row.unit), value, number, 5, fontsize=8)
        if row.ratio(side) is not None:
            write(f"ipybox: {factor(row.ratio(side))}", longest, number, 62, fontsize=8, color=LIGHT["faint"])


def _add_curve(canvas: Any, curve: Curve, place: tuple[float, float, float, float]) -> None:

    def tick(value: float, _: object) -> str:
        return f"{value * 1000:g} ms" if curve.unit == "s" and 0 < value < 1 else f"{value:g} {curve.unit}"

    axes = canvas.add_axes(place)
    axes.set_title(curve.name, loc="left", fontsize=9)
    axes.set_xlabel(curve.over)
    axes.spines[["top", "right"]].set_visible(False)
    numbers = sorted({number for points in curve.points.values() for number, _ in points})
    for side in SIDES:
        points = curve.points.get(side, [])
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=4, color=LIGHT[side])
    if _doubles(numbers):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
    axes.set_xticks(numbers, [f"{number:g}" for number in numbers])
    axes.yaxis.set_major_formatter(FuncFormatter(tick))


def _doubles(numbers: Sequence[float]) -> bool:
    return len(numbers) > 1 and all(after == 2 * before for before, after in pairwise(numbers))


def _measured(row: Row) -> list[Side]:
    return [side for side in SIDES if side in row.samples]


def _sides(rows: Sequence[Row]) -> list[Side]:
    return [side for side in SIDES if any(side in row.samples for row in rows)]


def _for_both_schemes(svg: str) -> str:
    """Adds a style sheet that replaces the colors where the reader has chosen a dark scheme.

    Programs that know no style sheets show the light one.
    """
    rules = [
        f'[style*="{attribute}: {LIGHT[name]}"]{{{attribute}:{DARK[name]} !important}}'
        for name in LIGHT
        for attribute in ("fill", "stroke")
    ]
    style = f"<style>@media (prefers-color-scheme: dark){{{''.join(rules)}}}</style>"
    # What says where the file was made and by what is of no use to readers.
    svg = re.sub(r"<metadata>.*?</metadata>\n?", "", svg, flags=re.DOTALL)
    svg = re.sub(r"[ \t]+\n", "\n", svg)
    return re.sub(r"(<svg[^>]*>)", rf"\g<1>\n {style}", svg, count=1)
