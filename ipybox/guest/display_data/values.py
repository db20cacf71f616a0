"""JSON values for the data of one display, within limits."""

import math
import reprlib
import sys
from typing import Any, cast

#: Values of one display, except those of texts that describe it, such as titles.
MAX_VALUES = 20_000

#: Characters of one text, and of all texts of one display.
MAX_TEXT = 500
MAX_CHARS = 1 << 20

#: JSON readers refuse integers that are much longer, and many round those beyond 64 bits.
MAX_INTEGER = 2**64

JSONScalar = bool | int | float | str | None

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = MAX_TEXT
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = 50


#: Classes whose `repr` can be long, and is made no longer than needed.
_SHORTENED = (list, tuple, dict, set, bytes, int)


class BoundedValues:
    """Converts the values of one display to JSON, and notes whether something was omitted or shortened.

    Attributes:
        truncated: Whether it was.
    """

    def __init__(self) -> None:
        self.truncated = False
        self._values = MAX_VALUES
        self._chars = MAX_CHARS

    def reserve(self, wanted: int, values_each: int, most: int) -> int:
        """Returns how many items the display can have, and reserves their values.

        Args:
            wanted: The items that there are.
            values_each: The values of one item; 0 for items that are counted elsewhere.
            most: The limit of items, whatever their values.
        """
        count = min(wanted, most, self._values // values_each if values_each else most)
        self._values -= count * values_each
        if count < wanted:
            self.truncated = True
        return count

    def scalar(self, value: object) -> JSONScalar:
        """Returns a value as JSON: a number that JSON does not have is None, any other object its text."""
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.generic) and cast(Any, value).dtype.kind in "biuf":
            value = cast(Any, value).item()
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
        if isinstance(value, int) and abs(value) < MAX_INTEGER:
            return int(value)
        return self.text(value)

    def text(self, value: object) -> str:
        """Returns the text of an object, shortened."""
        text = _text_of(value)
        room = min(MAX_TEXT, max(0, self._chars))
        if len(text) > room:
            self.truncated = True
            text = f"{text[:room]}…"
        self._chars -= len(text)
        return text


def _text_of(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    thing: Any = value
    try:
        if hasattr(thing, "isoformat"):  # dates, times, and durations of pandas
            return str(thing.isoformat())
        return _SHORT.repr(thing) if isinstance(thing, _SHORTENED) else str(thing)
    except Exception:  # of the code's own class
        return f"<{type(value).__name__}>"
