"""The formatters that add the data of displays to their other forms."""

import logging
import sys
from collections.abc import Callable
from typing import Any, cast

from IPython.core.formatters import BaseFormatter
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Unicode

from ipybox.guest.display_data.tables import table_of, table_of_series
from ipybox.support.outputs import CHART_TYPE, TABLE_TYPE

logger = logging.getLogger(__name__)

#: Makes the data of an object; None if it has no data.
Maker = Callable[[Any], dict[str, Any] | None]


class DataFormatter(BaseFormatter):
    """Adds one form to the displays of certain classes, which are looked for only in modules that code has imported.

    IPython can register a function for a class that is not imported yet, too, but matplotlib's backend removes what is
    registered for figures.
    """

    format_type = Unicode("application/json")
    _return_type = dict
    #: Functions by the names of module and class.
    makers: dict[tuple[str, str], Maker]

    def __call__(self, obj: object) -> dict[str, Any] | None:
        """Returns the data of an object; None if it has no data, or its data can't be read."""
        for (module, name), make in self.makers.items():
            cls = getattr(sys.modules.get(module), name, None)
            if self.enabled and isinstance(cls, type) and isinstance(obj, cls):
                try:
                    return make(obj)
                except Exception:  # of a class or library that differs: the display has its other forms
                    logger.debug("the data of a display can't be read", exc_info=True)
        return None


def _chart_of(figure: Any) -> dict[str, Any] | None:
    # It imports matplotlib, which code has imported now.
    from ipybox.guest.display_data.charts import chart_of

    return chart_of(figure)


class TableFormatter(DataFormatter):
    """Adds the data of DataFrames and Series."""

    format_type = Unicode(TABLE_TYPE)
    makers = {("pandas", "DataFrame"): table_of, ("pandas", "Series"): table_of_series}  # noqa: RUF012


class ChartFormatter(DataFormatter):
    """Adds the data of figures."""

    format_type = Unicode(CHART_TYPE)
    makers = {("matplotlib.figure", "Figure"): _chart_of}  # noqa: RUF012


def add_data(shell: InteractiveShell) -> None:
    """Adds the data of displays to all displays of a shell."""
    formatters = cast(Any, shell).display_formatter.formatters
    for formatter in (TableFormatter, ChartFormatter):
        formatters[formatter.format_type.default_value] = formatter(parent=shell.display_formatter)
