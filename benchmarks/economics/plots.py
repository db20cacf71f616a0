"""Plots of `docs/economics.md` as SVG: what each way takes, by parts, and how that grows with the number of tools."""

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.economics.results import PARTS, Economics, Part
from benchmarks.economics.tasks import TASKS, WAYS, Way
from benchmarks.performance import plots

#: Colors of parts and ways, in a light and a dark scheme, in addition to those of all plots.
LIGHT = plots.LIGHT | {
    "definitions": "#8c959e",
    "notices": "#bf8700",
    "discovery": "#8250df",
    "skill": "#cf222e",
    "results": "#0969db",
    "code": "#1a7f37",
    "JSON tools": "#57606b",
    "tool search": "#bc4c01",
    "saved action": "#1a7f38",
}
DARK = plots.DARK | {
    "definitions": "#6e7681",
    "notices": "#d29922",
    "discovery": "#a371f7",
    "skill": "#f85149",
    "results": "#4493f8",
    "code": "#3fb950",
    "JSON tools": "#adbac7",
    "tool search": "#db6d28",
    "saved action": "#57ab5a",
}

#: The color of a line. `code` is also a part, which has another one.
LINES: dict[Way, str] = {
    "JSON tools": LIGHT["JSON tools"],
    "tool search": LIGHT["tool search"],
    "code": LIGHT["ipybox"],
    "saved action": LIGHT["saved action"],
}

WIDTH, ROW = 8.6, 1.3

#: Its annotations are partial.
_matplotlib: Any = matplotlib


def parts(data: Economics, tools: int) -> str:
    """Returns bars of the tokens of all requests, part by part, with one number of tools.

    The axis of a task ends where the longest bar other than that of JSON tools does; a longer one is cut off.
    """
    shown: list[Part] = [part for part in PARTS if part != "skill"]
    with _matplotlib.rc_context(plots.SETTINGS):
        height = 0.5 + len(TASKS) * ROW
        canvas = _canvas(height)
        _legend(canvas, [(part, LIGHT[part]) for part in shown], 1 - 0.25 / height)
        for number, task in enumerate(TASKS):
            bottom = (len(TASKS) - 1 - number) * ROW + 0.12
            axes = canvas.add_axes((0.16, bottom / height, 0.68, (ROW - 0.42) / height))
            axes.set_title(task.title, loc="left", fontsize=9)
            _bars(axes, data, task.name, tools, shown)
        return _written(canvas)


def _bars(axes: Any, data: Economics, task: str, tools: int, shown: Sequence[Part]) -> None:
    sessions = [data.find(task, way, tools) for way in WAYS]
    totals = [session.total().tokens for session in sessions]
    longest = max(totals[1:])
    for row, (way, session, total) in enumerate(zip(WAYS, sessions, totals, strict=True)):
        left = 0.0
        for part in shown:
            width = min(session.total(part).tokens, longest * 1.04 - left)
            axes.barh(row, width, left=left, height=0.72, color=LIGHT[part])
            left += width
        text = f"{total:,}" + (" (cut off)" if total > longest else "")
        for place, label, side in ((0, way, -6), (left, text, 5)):
            axes.annotate(
                label,
                (place, row),
                xytext=(side, 0),
                textcoords="offset points",
                va="center",
                ha="right" if side < 0 else "left",
                fontsize=8,
            )
    axes.set_xlim(0, longest * 1.04)
    axes.set_ylim(len(WAYS) - 0.5, -0.5)
    axes.axis("off")


def growth(data: Economics) -> str:
    """Returns curves of the tokens of all requests over the number of tools, both logarithmic."""
    with _matplotlib.rc_context(plots.SETTINGS):
        height = 5.2
        canvas = _canvas(height)
        _legend(canvas, [*LINES.items()], 1 - 0.25 / height)
        for number, task in enumerate(TASKS):
            row, column = divmod(number, 3)
            place = (0.09 + column * 0.31, 0.56 - row * 0.47, 0.24, 0.3)
            axes = canvas.add_axes(place)
            axes.set_title(task.title, loc="left", fontsize=9)
            for way, color in LINES.items():
                tokens = [data.find(task.name, way, count).total().tokens for count in data.counts]
                axes.plot(data.counts, tokens, marker="o", markersize=3, color=color)
            _scale(axes, data.counts)
        return _written(canvas)


def _scale(axes: Any, counts: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(500, 2_000_000)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter(FuncFormatter(_thousands))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("tools")


def _thousands(value: float, _: object) -> str:
    return f"{value / 1000:,g}k"


def _legend(canvas: Any, entries: Sequence[tuple[str, str]], y: float) -> None:
    for number, (name, color) in enumerate(entries):
        x = 0.09 + 0.15 * number
        canvas.text(x, y, "■", color=color, va="center")
        canvas.text(x + 0.022, y, name, va="center")


def _canvas(height: float) -> Any:
    canvas: Any = Figure(figsize=(WIDTH, height))
    FigureCanvasSVG(canvas)
    return canvas


def _written(canvas: Any) -> str:
    written = io.StringIO()
    canvas.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return plots.for_both_schemes(written.getvalue(), LIGHT, DARK)
