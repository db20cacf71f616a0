"""What is read off figures of matplotlib, and how much of it."""

import json
from datetime import datetime
from importlib import import_module
from typing import Any

import pytest
from matplotlib.figure import Figure

from ipybox.guest.display_data.charts import chart_of
from ipybox.guest.display_data.series import MAX_POINTS, MAX_SERIES

pandas: Any = import_module("pandas")


class Plot:
    """A figure with one plot, and the chart that is read off it."""

    def __init__(self, **options: Any):
        self.figure: Any = Figure()
        self.axes: Any = self.figure.add_subplot(**options)

    def chart(self) -> dict[str, Any]:
        self.figure.canvas.draw()
        chart = chart_of(self.figure)
        assert chart is not None
        assert json.loads(json.dumps(chart, allow_nan=False)) == chart
        return chart

    def read(self) -> dict[str, Any]:
        """Returns the one plot."""
        (axes,) = self.chart()["axes"]
        return axes

    def series(self) -> list[dict[str, Any]]:
        return self.read()["series"]


@pytest.fixture
def plot() -> Plot:
    return Plot()


def test_titles_labels_scales_and_limits(plot: Plot):
    plot.figure.suptitle("All")
    plot.axes.set(title="Growth", xlabel="year", ylabel="size", yscale="log", xlim=(0, 5), ylim=(1, 100))

    assert plot.chart() == {
        "title": "All",
        "axes": [
            {
                "title": "Growth",
                "projection": "rectilinear",
                "x": {"label": "year", "scale": "linear", "limits": [0, 5]},
                "y": {"label": "size", "scale": "log", "limits": [1, 100]},
                "series": [],
                "other": [],
            }
        ],
        "truncated": False,
    }


def test_lines_points_and_rules(plot: Plot):
    plot.axes.plot([1, 2], [3, float("nan")], label="a")
    plot.axes.plot([1, 2], [3, 4], "o")
    plot.axes.scatter([5], [6], label="b")
    plot.axes.errorbar([1, 2], [3, 4], yerr=1, capsize=3, label="c")
    plot.axes.axhline(7, label="limit")
    plot.axes.axvline(8)

    assert plot.series() == [
        {"type": "line", "x": [1, 2], "y": [3, None], "label": "a"},
        {"type": "scatter", "x": [1, 2], "y": [3, 4], "label": None},
        {"type": "line", "x": [1, 2], "y": [3, 4], "label": "c"},
        {"type": "rule", "y": 7, "label": "limit"},
        {"type": "rule", "x": 8, "label": None},
        {"type": "scatter", "x": [5], "y": [6], "label": "b"},
    ]


def test_dates_categories_and_periods_are_as_code_gave_them():
    dates, categories, periods = Plot(), Plot(), Plot()
    dates.axes.plot([datetime(2024, 1, 1), datetime(2024, 1, 2, 12)], [1, 2])
    dates.axes.scatter([datetime(2024, 1, 1)], [1])
    categories.axes.scatter(["x", "y", "x"], [1, 2, 3])
    series = pandas.Series([1, 2], index=pandas.period_range("2024-01", periods=2, freq="M"))
    series.plot(ax=periods.axes)

    assert [each["x"] for each in dates.series()] == [
        ["2024-01-01T00:00:00", "2024-01-02T12:00:00"],
        ["2024-01-01T00:00:00"],
    ]
    assert dates.read()["x"]["scale"] == "datetime"
    assert categories.series()[0]["x"] == ["x", "y", "x"]
    assert categories.read()["x"]["scale"] == "category"
    assert categories.read()["x"]["ticks"] == [{"at": 0, "label": "x"}, {"at": 1, "label": "y"}]
    assert periods.series()[0]["x"] == ["2024-01-01T00:00:00", "2024-02-01T00:00:00"]
    assert periods.read()["x"]["scale"] == "datetime"


def test_coordinates_are_labels_only_if_there_is_one_for_each(plot: Plot):
    plot.axes.plot([0, 1], [1, 2])
    plot.axes.plot([0, 0.5], [1, 2])
    plot.axes.set_xticks([0, 1], ["Mon", "Tue"])

    assert [each["x"] for each in plot.series()] == [["Mon", "Tue"], [0, 0.5]]


def test_bars_have_the_labels_of_their_ticks():
    grouped, stacked, horizontal, numbers = Plot(), Plot(), Plot(), Plot()
    grouped.axes.bar([-0.2, 0.8], [1, 2], 0.4, label="a")
    grouped.axes.bar([0.2, 1.2], [3, 4], 0.4, label="b")
    grouped.axes.set_xticks([0, 1], ["Mon", "Tue"])
    stacked.axes.bar(["x", "y"], [1, 2], yerr=[0.1, 0.1])
    stacked.axes.bar(["x", "y"], [3, -4], bottom=[1, 2])
    horizontal.axes.barh(["x", "y"], [1, -2])
    numbers.axes.bar([1, 5], [2, 3])

    assert [(each["label"], each["x"], each["y"]) for each in grouped.series()] == [
        ("a", ["Mon", "Tue"], [1, 2]),
        ("b", ["Mon", "Tue"], [3, 4]),
    ]
    assert stacked.series()[1] == {
        "type": "bar",
        "orientation": "vertical",
        "x": ["x", "y"],
        "y": [3, -4],
        "bases": [1, 2],
        "label": None,
    }
    assert stacked.read()["other"] == []
    assert horizontal.series() == [
        {"type": "bar", "orientation": "horizontal", "x": [1, -2], "y": ["x", "y"], "label": None}
    ]
    assert numbers.series()[0]["x"] == [1, 5]


def test_histograms_have_edges_and_counts(plot: Plot):
    plot.axes.hist([0, 1, 1, 2], bins=2, label="a")
    plot.axes.stairs([5, 6], [0, 1, 2], label="b")

    assert [(each["type"], each["label"], each["edges"], each["counts"]) for each in plot.series()] == [
        ("histogram", "a", [0, 1, 2], [1, 3]),
        ("histogram", "b", [0, 1, 2], [5, 6]),
    ]


def test_pies_have_labels_and_fractions(plot: Plot):
    plot.axes.pie([1, 3], labels=["x", "y"], autopct="%d")

    (pie,) = plot.series()
    assert (pie["type"], pie["labels"]) == ("pie", ["x", "y"])
    assert pie["fractions"] == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize(
    "options", [{}, {"patch_artist": True}, {"notch": True}, {"showmeans": True, "meanline": True}]
)
@pytest.mark.parametrize("orientation", ["vertical", "horizontal"])
def test_boxes_are_read_off_their_lines(plot: Plot, options: dict[str, Any], orientation: str):
    plot.axes.boxplot([[1, 2, 3, 4, 20], [2, 3, 4]], positions=[1, 4.1], orientation=orientation, **options)
    plot.axes.plot([1, 4], [7, 8], label="line")

    line, boxes = plot.series()
    means: list[dict[str, int]] = [{"mean": 6}, {"mean": 3}] if "showmeans" in options else [{}, {}]
    assert line["label"] == "line"
    assert boxes == {
        "type": "box",
        "orientation": orientation,
        "label": None,
        "boxes": [
            {"position": "1.0", "low": 1, "q1": 2, "median": 3, "q3": 4, "high": 4, **means[0], "outliers": [20]},
            {"position": "4.1", "low": 2, "q1": 2.5, "median": 3, "q3": 3.5, "high": 4, **means[1], "outliers": []},
        ],
    }


def test_what_can_not_be_read_is_named():
    filled, solid = Plot(), Plot(projection="3d")
    filled.axes.fill_between([1, 2], [3, 4])
    filled.axes.imshow([[1, 2]])
    filled.figure.colorbar(filled.axes.images[0])
    solid.axes.plot([1, 2], [3, 4], [5, 6])

    assert filled.series() == []
    assert "AxesImage" in filled.read()["other"]
    assert len(filled.read()["other"]) == 2
    assert (solid.series(), solid.read()["other"]) == ([], ["Line3D"])


def test_a_figure_without_plots_has_no_chart():
    assert chart_of(Figure()) is None


def test_a_chart_is_bounded_and_says_so(plot: Plot):
    for number in range(150):
        plot.axes.plot(range(MAX_POINTS * 3), label=f"{number} " + "x" * 10_000)
    plot.axes.set_title("t" * 1_000_000)
    chart = chart_of(plot.figure)  # drawing it would take long

    assert chart is not None
    assert chart["truncated"] is True
    assert len(chart["axes"][0]["series"]) == MAX_SERIES
    first = chart["axes"][0]["series"][0]
    assert (len(first["x"]), first["total"]) == (MAX_POINTS, MAX_POINTS * 3)
    assert len(json.dumps(chart)) < 2_000_000
