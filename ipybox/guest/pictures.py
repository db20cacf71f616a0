"""Adds forms of displays that can be read without a browser: PNGs of figures, and the final text of widgets."""

import base64
import html
import importlib.util
import io
import logging
import sys
import uuid
from collections.abc import Callable, Mapping
from typing import Any, cast

from IPython.core.formatters import DisplayFormatter
from traitlets import default

logger = logging.getLogger(__name__)

PNG = "image/png"
PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"

#: The classes of altair's charts, whose displays do not contain their data.
CHARTS = [(f"altair.vegalite.v{version}.api", "TopLevelMixin") for version in (5, 6)]

#: Maximum widgets per cell whose text is updated.
MAX_WIDGETS = 100


class GuestDisplayFormatter(DisplayFormatter):
    """Adds a PNG to altair's charts if vl-convert is installed."""

    @default("formatters")
    def _formatters_default(self) -> dict[str, Any]:
        formatters: dict[str, Any] = cast(Any, super())._formatters_default()
        for module, name in CHARTS:
            formatters[PNG].for_type_by_name(module, name, chart_picture)
        return formatters


def chart_picture(chart: Any) -> bytes | None:
    """Returns an altair chart as a PNG; None without vl-convert, or if it fails."""

    def render() -> bytes:
        chart.save(file := io.BytesIO(), format="png")
        return file.getvalue()

    return _rendered("vl_convert", render)


def with_picture(data: dict[str, Any]) -> dict[str, Any]:
    """Returns the forms of a display, with a PNG for a plotly figure if kaleido can make it."""
    if PLOTLY not in data or PNG in data or "plotly" not in sys.modules:
        return data

    def render() -> bytes:
        return importlib.import_module("plotly.io").to_image(data[PLOTLY], format="png", validate=False)

    picture = _rendered("kaleido", render)
    return data if picture is None else data | {PNG: base64.b64encode(picture).decode()}


def _rendered(package: str, render: Callable[[], bytes]) -> bytes | None:
    """Returns a picture, or None if the package for it is missing or fails: the display keeps its other forms."""
    if importlib.util.find_spec(package) is None:
        return None
    try:
        return render()
    except Exception:  # it may need a browser
        logger.debug("%s can't render the display as an image", package, exc_info=True)
        return None


class ShownWidgets:
    """Gives the widgets that a cell displays, such as progress bars, their final text."""

    def __init__(self) -> None:
        #: Display ids by widget model id.
        self._shown: dict[str, str] = {}

    def record(self, data: Mapping[str, Any], transient: dict[str, Any] | None) -> dict[str, Any] | None:
        """Records a display, and returns its transient data."""
        view: Any = data.get(WIDGET)
        if not isinstance(view, dict) or len(self._shown) >= MAX_WIDGETS:
            return transient
        transient = {"display_id": uuid.uuid4().hex} | (transient or {})
        self._shown[str(cast(dict[str, Any], view).get("model_id"))] = transient["display_id"]
        return transient

    def update(self, publish: Callable[..., object]) -> None:
        """Updates the recorded displays, and clears the record."""
        shown, self._shown = self._shown, {}
        instances: Any = getattr(sys.modules.get("ipywidgets.widgets.widget"), "_instances", {}) if shown else {}
        for model, display in shown.items():
            text = "" if (widget := instances.get(model)) is None else _widget_text(widget)
            publish({"text/plain": text}, transient={"display_id": display}, update=True)


def _widget_text(widget: Any) -> str:
    try:
        return widget._repr_mimebundle_()["text/plain"]
    except Exception:  # a tqdm bar is gone after its loop, but its widgets remain
        values = (getattr(child, "value", "") for child in getattr(widget, "children", ()))
        return "".join(html.unescape(value) for value in values if isinstance(value, str)).replace("\u2007", " ")
