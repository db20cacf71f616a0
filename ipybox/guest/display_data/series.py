"""The series of a plot: lines, points, bars, histograms and pies."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

from ipybox.guest.display_data.axis import AxisReader
from ipybox.guest.display_data.matplotlib_classes import (
    AxLine,
    BarContainer,
    ErrorbarContainer,
    PathCollection,
    StepPatch,
    Wedge,
)
from ipybox.guest.display_data.values import BoundedValues, JSONScalar

MAX_SERIES = 100
MAX_POINTS = 5000

Series = dict[str, Any]


class SeriesReader:
    """Reads the series of one plot.

    Args:
        axes: The plot, `Axes` of matplotlib.
        x: Its horizontal axis.
        y: Its vertical axis.
        values: Converts the values.
        artists: What is read elsewhere.
    """

    def __init__(self, axes: Any, x: AxisReader, y: AxisReader, values: BoundedValues, artists: set[Any]):
        self._axes = axes
        self._x = x
        self._y = y
        self._values = values
        #: What was read, here or elsewhere, or only decorates what was read.
        self.artists = artists
        #: The labels of lines with error bars, which do not have them themselves.
        self._labels: dict[Any, object] = {}

    def read(self) -> list[Series]:
        """Returns the series that can be read."""
        series: list[Series] = []
        for each in (self._bars(), self._lines(), self._points(), self._steps(), self._pies()):
            series += each
        return series[: self._values.reserve(len(series), 0, MAX_SERIES)]

    def _bars(self) -> Iterator[Series]:
        for each in self._axes.containers:
            if isinstance(each, BarContainer):
                self._forget_errors(each.errorbar)
                bars = list(each.patches)
                self.artists.update(bars)
                count = self._values.reserve(len(bars), 3, MAX_POINTS)
                horizontal = each.orientation == "horizontal"
                yield self._with_total(self._bar_series(bars[:count], horizontal), _label_of(each), len(bars))
            elif isinstance(each, ErrorbarContainer):
                self._forget_errors(each)
                self._labels[each.lines[0]] = each.get_label()

    def _bar_series(self, bars: list[Any], horizontal: bool) -> Series:
        along, across = (self._y, self._x) if horizontal else (self._x, self._y)
        starts = [bar.get_y() if horizontal else bar.get_x() for bar in bars]
        sizes = [bar.get_height() if horizontal else bar.get_width() for bar in bars]
        bases = [bar.get_x() if horizontal else bar.get_y() for bar in bars]
        # A length, which is no coordinate: on an axis for dates it is a number of days.
        lengths = [self._values.scalar(float(bar.get_width() if horizontal else bar.get_height())) for bar in bars]
        ends = [start + size for start, size in zip(starts, sizes, strict=True)]
        series: Series = {"orientation": "horizontal" if horizontal else "vertical"}
        if len(bars) > 1 and not along.has_labels and _touch(starts, ends):
            series |= {"type": "histogram", "edges": along.coordinates([*starts, ends[-1]]), "counts": lengths}
        else:
            centers = along.centers([start + size / 2 for start, size in zip(starts, sizes, strict=True)])
            series |= {"type": "bar", "x": centers, "y": lengths}
            if horizontal:
                series |= {"x": lengths, "y": centers}
        if any(bases):
            series["bases"] = across.coordinates(bases)
        return series

    def _lines(self) -> Iterator[Series]:
        for line in self._axes.lines:
            if line in self.artists or not line.get_visible() or isinstance(line, AxLine):
                continue
            in_x, in_y = line.get_transform().contains_branch_seperately(self._axes.transData)
            label = self._labels.get(line, line.get_label())
            if in_x and in_y:
                self.artists.add(line)
                kind = "scatter" if line.get_linestyle() in ("None", "none", " ", "") else "line"
                yield self._points_of(kind, label, line.get_xdata(orig=False), line.get_ydata(orig=False))
            elif in_x or in_y:  # of `axvline` or `axhline`
                self.artists.add(line)
                numbers = line.get_xdata(orig=False) if in_x else line.get_ydata(orig=False)
                value = (self._x if in_x else self._y).coordinate(numbers[0])
                yield self._with_total({"type": "rule", "x" if in_x else "y": value}, label, 0)

    def _points(self) -> Iterator[Series]:
        for points in self._axes.collections:
            if isinstance(points, PathCollection) and points.get_visible():
                self.artists.add(points)
                offsets: Any = points.get_offsets()
                offsets = offsets.filled(float("nan")) if hasattr(offsets, "filled") else offsets
                yield self._points_of("scatter", points.get_label(), offsets[:, 0], offsets[:, 1])

    def _points_of(self, kind: str, label: object, x: Any, y: Any) -> Series:
        count = self._values.reserve(len(x), 2, MAX_POINTS)
        series = {"type": kind, "x": self._x.coordinates(x[:count]), "y": self._y.coordinates(y[:count])}
        return self._with_total(series, label, len(x))

    def _steps(self) -> Iterator[Series]:
        """Yields the histograms of `stairs`."""
        for patch in self._axes.patches:
            if isinstance(patch, StepPatch):
                self.artists.add(patch)
                counts, edges, _ = patch.get_data()
                horizontal = patch.orientation == "horizontal"
                shown = self._values.reserve(len(counts), 2, MAX_POINTS)
                series = {
                    "orientation": patch.orientation,
                    "type": "histogram",
                    "edges": (self._y if horizontal else self._x).coordinates(edges[: shown + 1]),
                    "counts": [self._values.scalar(float(count)) for count in counts[:shown]],
                }
                yield self._with_total(series, patch.get_label(), len(counts))

    def _pies(self) -> Iterator[Series]:
        pies: dict[tuple[object, object], list[Any]] = {}
        for patch in self._axes.patches:
            if isinstance(patch, Wedge):
                self.artists.add(patch)
                pies.setdefault((patch.r, patch.width), []).append(patch)
        for wedges in pies.values():
            shown = wedges[: self._values.reserve(len(wedges), 2, MAX_POINTS)]
            series = {
                "type": "pie",
                "labels": [self._label(wedge.get_label()) for wedge in shown],
                "fractions": [self._values.scalar((wedge.theta2 - wedge.theta1) / 360) for wedge in shown],
            }
            yield self._with_total(series, None, len(wedges))

    def _forget_errors(self, bars: Any) -> None:
        """Omits the caps and lines of error bars."""
        if bars is not None:
            _, caps, error_lines = bars.lines
            self.artists.update([*caps, *error_lines])

    def _with_total(self, series: Series, label: object, total: int) -> Series:
        """Adds the label, and the number of points if not all are there."""
        kept = max((len(cast(Any, value)) for value in series.values() if isinstance(value, list)), default=0)
        return {**series, "label": self._label(label), **({"total": total} if kept < total else {})}

    def _label(self, label: object) -> JSONScalar:
        """Returns a label; None for one that matplotlib has made up."""
        return None if label is None or str(label).startswith("_") else self._values.text(label) or None


def _label_of(bars: Any) -> object:
    """Returns the label of bars; that of a histogram is the label of its first bar."""
    labels = [each.get_label() for each in (bars, *bars.patches)]
    given = [label for label in labels if label and not str(label).startswith("_")]
    return given[0] if given and given[0] in labels[:2] and len(given) == 1 else None


def _touch(starts: list[float], ends: list[float]) -> bool:
    """Returns whether each bar starts where the one before ends."""
    gap = 1e-6 * (max(ends) - min(starts))
    return all(abs(start - end) <= gap for (_, end), (start, _) in pairwise(zip(starts, ends, strict=True)))
