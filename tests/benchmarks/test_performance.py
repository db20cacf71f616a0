"""Measurements, their results, the page and the plots that are made of them; nothing is measured."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.figures import describe, factor, figure
from benchmarks.measurement import SHOWN, Limit, Measurement, Samples, Setting, Side, Unit, take_turns
from benchmarks.performance.__main__ import main
from benchmarks.performance.plots import relative
from benchmarks.results import Results, read_results, row
from benchmarks.suite import SUITE

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results.json"
DOCS = ROOT / "docs"

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def results() -> Results:
    """The results of the run that docs/benchmarks.md shows."""
    return read_results(RESULTS)


def measurement(unit: Unit = "s", *limits: Limit) -> Measurement:
    return Measurement("thing", "cells", "a thing", "without it", lambda _: Samples({}), limits, unit)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["benchmarks.performance", *map(str, arguments)])
    try:
        main()
    except SystemExit as exc:
        return int(exc.code or 0)
    return 0


@pytest.mark.parametrize(
    ("unit", "limit", "text", "holds"),
    [
        pytest.param("s", Limit(1.5), "≤ 1.5 × floor", True, id="floor"),
        pytest.param("s", Limit(1), "≤ floor", False, id="floor missed"),
        pytest.param("s", Limit(1, plus=0.5), "≤ floor + 0.5 s", True, id="floor and more"),
        pytest.param("s", Limit(0.1, "peer"), "≤ 0.1 × peer", None, id="peer not measured"),
        pytest.param("s", Limit(plus=0.06, origin="a half"), "≤ 60 ms (a half)", False, id="absolute"),
        pytest.param("calls/s", Limit(1), "≥ floor", True, id="rate"),
        pytest.param("calls/s", Limit(1.6), "≥ 1.6 × floor", False, id="rate missed"),
        pytest.param("MiB", Limit(plus=25), "≤ 25 MiB", True, id="memory"),
    ],
)
def test_a_limit_is_an_upper_one_but_for_rates(unit: Unit, limit: Limit, text: str, holds: bool | None) -> None:
    samples = Samples({"ipybox": [1.0, 1.5, 9.0], "floor": [1.0]})
    it = measurement(unit, limit)
    assert describe(limit, it) == text
    assert it.holds(limit, samples) is holds


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.00123, "s", "1.23 ms"),
        (0.1, "s", "0.10 s"),
        (12.34, "s", "12.3 s"),
        (1290.4, "calls/s", "1,290 /s"),
        (127.3, "MiB", "127 MiB"),
        (19_200, "B", "19.2 kB"),
        (None, "s", ""),
    ],
)
def test_a_figure_has_three_digits_and_its_unit(value: float | None, unit: Unit, text: str) -> None:
    assert figure(value, unit) == text


def test_sides_take_turns_in_another_order_each_round_after_one_that_does_not_count() -> None:
    calls: list[str] = []

    def work(side: str) -> Callable[[], list[float]]:
        def done() -> list[float]:
            calls.append(side)
            return [float(len(calls))]

        return done

    sides: dict[Side, Callable[[], list[float]]] = {"floor": work("f"), "ipybox": work("i")}
    assert take_turns(Setting(2, {}), sides) == {"floor": [3.0, 6.0], "ipybox": [4.0, 5.0]}
    assert "".join(calls) == "fifiif"
    calls.clear()
    assert take_turns(Setting(2, {}, quick=True), sides) == {"floor": [1.0], "ipybox": [2.0]}


def test_the_p95_is_what_95_percent_of_the_samples_do_not_exceed() -> None:
    made = row(measurement(), Samples({"ipybox": [float(number) for number in range(100)], "floor": [2.0, 1.0]}))
    assert made.p95("ipybox") == 94
    assert made.p95("floor") == 2
    assert made.p95("peer") is None


def test_names_are_unique_and_each_shown_group_has_a_measurement() -> None:
    names = [each.name for each in SUITE]
    assert len(set(names)) == len(names)
    assert set(SHOWN) <= {each.group for each in SUITE}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(None, "No such file or directory", id="no file"),
        pytest.param("{", "has no results of benchmarks: JSON: Invalid JSON", id="no JSON"),
        pytest.param('{"rows": []}', "has no results of benchmarks: date: Field required", id="other JSON"),
    ],
)
def test_a_file_without_results_is_a_line_and_an_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: str | None,
    problem: str,
) -> None:
    path = tmp_path / "results.json"
    if content is not None:
        path.write_text(content)
    assert run(monkeypatch, path, "--docs", tmp_path) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"benchmarks.performance: {path}")
    assert problem in printed


def test_the_page_in_docs_is_what_its_results_make(tmp_path: Path) -> None:
    # In a process of its own, because matplotlib keeps the files of fonts open.
    command = [sys.executable, "-m", "benchmarks.performance", RESULTS, "--docs", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    for name in ("benchmarks.md", "pictures/speed.svg"):
        assert (tmp_path / name).read_text() == (DOCS / name).read_text()


def test_the_page_shows_each_row_and_the_machine(results: Results) -> None:
    text = (DOCS / "benchmarks.md").read_text()
    for each in results.rows:
        (line,) = (line for line in text.splitlines() if line.startswith(f"| {each.what} |"))
        assert all(figure(each.median(side), each.unit) in line for side in each.samples)
    assert results.machine.processor in text
    assert results.date in text


def test_neither_results_nor_page_name_files_of_the_machine() -> None:
    for path in (RESULTS, DOCS / "benchmarks.md"):
        assert re.findall(r"/(?:home|srv|root|tmp|work|usr|opt|Users)/\S*", path.read_text()) == []


def test_a_rate_is_compared_as_a_time() -> None:
    samples = Samples({"ipybox": [200.0], "floor": [100.0]})

    assert relative(row(measurement("s"), samples), "ipybox") == 2
    assert relative(row(measurement("calls/s"), samples), "ipybox") == 0.5
    assert relative(row(measurement("s"), samples), "peer") is None


def test_a_plot_has_its_figures_as_text_and_a_dark_scheme(results: Results) -> None:
    plot = ElementTree.parse(DOCS / "pictures" / "speed.svg").getroot()
    texts = {"".join(each.itertext()) for each in plot.iter(f"{SVG}text")}
    assert {each.what for each in results.rows} <= texts
    assert {factor(relative(each, "ipybox")) for each in results.rows} <= texts
    assert any("prefers-color-scheme: dark" in (style.text or "") for style in plot.iter(f"{SVG}style"))
