"""matplotlib figures as charts: the axes with their series."""

from typing import Any

from ipybox.guest.display_data.axis import AxisReader
from ipybox.guest.display_data.boxes import BoxReader
from ipybox.guest.display_data.series import SeriesReader
from ipybox.guest.display_data.values import BoundedValues

MAX_AXES = 50

#: The projections whose coordinates are two numbers.
PROJECTIONS = ("rectilinear", "polar")


def chart_of(figure: Any) -> dict[str, Any] | None:
    """Returns a figure as a chart; None if it has no axes. Colorbars are no axes of their own."""
    values = BoundedValues()
    all_axes = [axes for axes in figure.axes if axes.get_visible() and axes.get_label() != "<colorbar>"]
    if not all_axes:
        return None
    shown = all_axes[: values.reserve(len(all_axes), 0, MAX_AXES)]
    # Older versions of matplotlib have no such method.
    title = getattr(figure, "get_suptitle", str)()
    chart = {"title": values.text(title) or None, "axes": [_axes(axes, values) for axes in shown]}
    return {**chart, "truncated": values.truncated}


def _axes(axes: Any, values: BoundedValues) -> dict[str, Any]:
    x, y = AxisReader(axes.xaxis, values), AxisReader(axes.yaxis, values)
    series: list[dict[str, Any]] = []
    unread = [*axes.lines, *axes.collections, *axes.patches, *axes.images]
    if axes.name in PROJECTIONS:
        boxes = BoxReader(x, y, values)
        boxes.read(axes.get_children())
        reader = SeriesReader(axes, x, y, values, boxes.artists)
        series = [*reader.read(), *boxes.series()]
        unread = [artist for artist in unread if artist not in reader.artists]
    return {
        "title": values.text(axes.get_title()) or None,
        "projection": values.text(axes.name),
        "x": x.description(),
        "y": y.description(),
        "series": series,
        "other": sorted({values.text(type(artist).__name__) for artist in unread if artist.get_visible()}),
    }
