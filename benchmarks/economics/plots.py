"""Plots of `docs/economics.md` as SVG: what each way takes, by parts, and how that grows with the number of tools."""

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.economics.results import PARTS, Economics, Part
from benchmarks.economics.tasks import LOOP, ONE_CALL, TASKS, WAYS, Way
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
}

#: The name and the color of a line. `code` is also a part, which has another color.
LINES: dict[Way, tuple[str, str]] = {
    "JSON tools": ("JSON tools", LIGHT["JSON tools"]),
    "tool search": ("tool search", LIGHT["tool search"]),
    "code": ("ipybox", LIGHT["ipybox"]),
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
    """Return curves of the tokens by the number of tools, for a task where code wins and one where it may lose.

    Both axes are logarithmic. Each curve ends with its name and its last value.
    """
    with _matplotlib.rc_context({**plots.SETTINGS, "font.size": 12}):
        canvas = _canvas(4.0)
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
        return _written(canvas)


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
