"""The box plots of a plot, which matplotlib draws as lines without a record of their values.

A box is followed by two whiskers from its edges, two caps at their ends, and the median, in the order in which `bxp` of
matplotlib draws them. https://matplotlib.org/stable/api/_as_gen/matplotlib.axes.Axes.bxp.html
"""

import math
from collections.abc import Sequence
from typing import Any

from ipybox.guest.display_data.axis import AxisReader
from ipybox.guest.display_data.matplotlib_classes import Line2D, PathPatch
from ipybox.guest.display_data.values import BoundedValues

MAX_BOXES = 500
MAX_OUTLIERS = 1000

#: Whiskers, caps and the median.
PARTS = 5


class BoxReader:
    """Reads the box plots of one plot.

    Args:
        x: Its horizontal axis.
        y: Its vertical axis.
        values: Converts the values.
    """

    def __init__(self, x: AxisReader, y: AxisReader, values: BoundedValues):
        self._axes = (x, y)
        self._values = values
        self._boxes: dict[str, list[dict[str, Any]]] = {}
        #: What was read.
        self.artists: set[Any] = set()

    def read(self, children: Sequence[Any]) -> None:
        """Reads the boxes among the artists of a plot, which are in the order in which they were drawn."""
        drawn = [each for each in children if isinstance(each, Line2D | PathPatch)]
        start = 0
        while start < len(drawn):
            start += self._read_at(drawn[start : start + PARTS + 3]) or 1

    def series(self) -> list[dict[str, Any]]:
        """Returns one series for each orientation."""
        return [
            {"type": "box", "orientation": orientation, "label": None, "boxes": boxes}
            for orientation, boxes in self._boxes.items()
        ]

    def _read_at(self, drawn: Sequence[Any]) -> int:
        """Reads the box that these artists start with; returns the number of its artists, or 0 if it is no box."""
        box, *rest = drawn
        parts = rest[:PARTS]
        points = [part.get_xydata() for part in parts if isinstance(part, Line2D)]
        if len(points) < PARTS or any(len(each) != 2 for each in points):
            return 0
        corners = box.get_xydata() if isinstance(box, Line2D) else box.get_path().vertices
        for across, along in ((0, 1), (1, 0)):
            low, high, low_cap, high_cap, median = points
            if (
                low[0, across] == low[1, across] == high[0, across] == high[1, across]
                and {low[0, along], high[0, along]} <= {*corners[:, along]}
                and all(low_cap[:, along] == low[1, along])
                and all(high_cap[:, along] == high[1, along])
                and low[0, along] <= median[0, along] == median[1, along] <= high[0, along]
            ):
                mean, outliers = _mean_and_outliers(rest[PARTS:], low[0, across], across, along)
                artists = [each for each in (box, *parts, mean, outliers) if each is not None]
                self.artists.update(artists)
                self._add(across, along, points, mean, outliers)
                return len(artists)
        return 0

    def _add(self, across: int, along: int, points: list[Any], mean: Any, outliers: Any) -> None:
        boxes = self._boxes.setdefault("horizontal" if along == 0 else "vertical", [])
        if not self._values.reserve(1, 7, MAX_BOXES - len(boxes)):
            return
        low, high, _, _, median = points
        axis = self._axes[along]
        outside: Any = () if outliers is None else outliers.get_xydata()[:, along]
        numbers = {
            "low": low[1, along],
            "q1": low[0, along],
            "median": median[0, along],
            "q3": high[0, along],
            "high": high[1, along],
            **({} if mean is None else {"mean": mean.get_xydata()[0, along]}),
        }
        (position,) = self._axes[across].coordinates([low[0, across]])
        boxes.append(
            {
                "position": position,
                **{name: axis.coordinate(number) for name, number in numbers.items()},
                "outliers": axis.coordinates(outside[: self._values.reserve(len(outside), 1, MAX_OUTLIERS)]),
            }
        )


def _mean_and_outliers(drawn: Sequence[Any], position: float, across: int, along: int) -> tuple[Any, Any]:
    """Returns the artists that follow a box and draw its mean and its outliers; None for what is not drawn."""
    mean = None
    if drawn and _is_mean(drawn, position, across, along):
        mean, *drawn = drawn
    return mean, drawn[0] if drawn and _is_marker(drawn[0], position, across) else None


def _is_mean(drawn: Sequence[Any], position: float, across: int, along: int) -> bool:
    """Returns whether the first artist is a mean: a line as the median is, or a marker before those of outliers."""
    if not isinstance(drawn[0], Line2D):
        return False
    data = drawn[0].get_xydata()
    if len(data) == 2:
        return data[0, along] == data[1, along] and math.isclose(data[:, across].mean(), position, abs_tol=1e-9)
    follows = len(drawn) > 1 and _is_marker(drawn[1], position, across)
    return follows and len(data) == 1 and _is_marker(drawn[0], position, across)


def _is_marker(artist: Any, position: float, across: int) -> bool:
    """Returns whether an artist draws the outliers of the box at this position, of which there may be none."""
    is_line = isinstance(artist, Line2D) and artist.get_linestyle() in ("None", "none", " ", "")
    return is_line and all(artist.get_xydata()[:, across] == position)
