"""One axis of a plot: its description, and the coordinates on it as code gave them."""

import functools
from typing import Any

from ipybox.guest.display_data.matplotlib_classes import (
    DATE_FORMATTERS,
    NAMING_FORMATTERS,
    FuncFormatter,
    date_module,
)
from ipybox.guest.display_data.values import BoundedValues, JSONScalar

MAX_TICKS = 1000


class AxisReader:
    """Reads one axis.

    Coordinates are numbers, or dates on an axis for dates (ISO 8601; those with a time zone are in UTC, and periods
    are their start), or the labels of ticks on an axis that has labels in place of numbers.

    Args:
        axis: The axis of matplotlib.
        values: Converts the coordinates.
    """

    def __init__(self, axis: Any, values: BoundedValues):
        self._axis = axis
        self._values = values
        locator, formatter = axis.get_major_locator(), axis.get_major_formatter()
        #: The frequency of an axis for periods, whose coordinates are the numbers of periods, as pandas makes it.
        self._period = getattr(locator, "freq", None) if type(locator).__name__ == "TimeSeries_DateLocator" else None
        self._is_date = isinstance(locator, date_module.DateLocator) or isinstance(formatter, DATE_FORMATTERS)
        #: The labels of ticks, by their rounded coordinates.
        self._labels: dict[float, str] = {}
        if _names_ticks(formatter):
            texts = [label.get_text() for label in axis.get_majorticklabels()]
            places = map(_rounded, axis.get_majorticklocs())
            self._labels = {at: values.text(text) for at, text in zip(places, texts, strict=False) if text}

    @property
    def has_labels(self) -> bool:
        """Whether ticks have labels in place of numbers."""
        return bool(self._labels)

    def description(self) -> dict[str, Any]:
        """Returns label, scale and limits, and the labels of ticks that have some in place of numbers."""
        is_time = self._is_date or self._period is not None
        description = {
            "label": self._values.text(self._axis.get_label_text()) or None,
            "scale": "category" if self.has_labels else "datetime" if is_time else self._axis.get_scale(),
            "limits": [self.coordinate(limit) for limit in self._axis.get_view_interval()],
        }
        if not self.has_labels:
            return description
        labels = [*self._labels.items()]
        count = self._values.reserve(len(labels), 2, MAX_TICKS)
        return {**description, "ticks": [{"at": at, "label": label} for at, label in labels[:count]]}

    def coordinate(self, number: Any) -> JSONScalar:
        """Returns one coordinate as a number or a date."""
        number = float(number)
        if number != number:
            return None
        if self._period is not None:
            from pandas import Period  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType] - made the axis

            made: Any = Period
            return self._values.scalar(made(ordinal=round(number), freq=self._period).start_time)
        if self._is_date:
            return self._values.scalar(date_module.num2date(number).replace(tzinfo=None))
        return self._values.scalar(number)

    def coordinates(self, numbers: Any) -> list[JSONScalar]:
        """Returns coordinates, as labels if there is one for each."""
        if self.has_labels:
            places = [_rounded(number) for number in numbers]
            if all(place in self._labels for place in places):
                return [self._values.text(self._labels[place]) for place in places]
        return [self.coordinate(number) for number in numbers]

    def centers(self, numbers: list[float]) -> list[JSONScalar]:
        """Returns the coordinates of bars, which have the label of the next tick, unless they share one."""
        nearest = [min(self._labels, key=lambda at: abs(at - number), default=number) for number in numbers]
        return self.coordinates(nearest if len({*nearest}) == len(numbers) else numbers)


def _rounded(number: Any) -> float:
    """Returns a coordinate without the errors of its calculation."""
    return round(float(number), 9)


def _names_ticks(formatter: Any) -> bool:
    """Returns whether ticks have texts of their own: categories, or those of `set_xticks` and the like."""
    if isinstance(formatter, NAMING_FORMATTERS):
        return True
    return isinstance(formatter, FuncFormatter) and isinstance(formatter.func, functools.partial)
