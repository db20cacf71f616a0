"""Measurements, their results, the page and the plots that are made of them, and the history; nothing is measured."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.figures import describe, figure
from benchmarks.measurement import SHOWN, Limit, Measurement, Samples, Setting, Side, Unit, take_turns
from benchmarks.performance.__main__ import main
from benchmarks.performance.history import compare, entry
from benchmarks.performance.page import page
from benchmarks.results import Results, read_results, row
from benchmarks.suite import SUITE

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results.json"
DOCS = ROOT / "docs"

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def results() -> Results:
    """The results of the run that docs/performance.md shows."""
    return read_results(RESULTS)


@pytest.fixture
def whole(results: Results, tmp_path: Path) -> Path:
    """A file with the results as those of a whole run, which alone is recorded."""
    path = tmp_path / "whole.json"
    path.write_text(results.model_copy(update={"quick": False}).model_dump_json())
    return path


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
    assert run(monkeypatch, "write", path, "--docs", tmp_path) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"benchmarks.performance: {path}")
    assert problem in printed


def test_the_page_in_docs_is_what_its_results_make(tmp_path: Path) -> None:
    # In a process of its own, because matplotlib keeps the files of fonts open.
    command = [sys.executable, "-m", "benchmarks.performance", "write", RESULTS, "--docs", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    assert (tmp_path / "performance.md").read_text() == (DOCS / "performance.md").read_text()
    written, kept = (sorted(path.name for path in (each / "performance").iterdir()) for each in (tmp_path, DOCS))
    assert written == kept


def test_the_page_shows_each_row_with_its_target_and_links_each_plot(results: Results) -> None:
    text = (DOCS / "performance.md").read_text()
    for each in results.rows:
        (line,) = (line for line in text.splitlines() if line.startswith(f"| {each.what} (`{each.name}`"))
        assert figure(each.median("ipybox"), each.unit) in line
        assert all(limit.text in line for limit in each.limits)
    links = re.findall(r"\]\((performance/.*\.svg)\)", text)
    assert len(links) == len({each.group for each in results.rows})
    assert all((DOCS / link).is_file() for link in links)
    assert results.machine.processor in text


def test_neither_results_nor_page_name_files_of_the_machine() -> None:
    for path in (RESULTS, DOCS / "performance.md"):
        assert re.findall(r"/(?:home|srv|root|tmp|work|usr|opt|Users)/\S*", path.read_text()) == []


def test_a_plot_has_its_figures_as_text_and_a_dark_scheme(results: Results) -> None:
    for group in {each.group for each in results.rows}:
        path = DOCS / "performance" / f"{group.lower().replace(' ', '-')}.svg"
        plot = ElementTree.parse(path).getroot()
        texts = {"".join(each.itertext()) for each in plot.iter(f"{SVG}text")}
        rows = [each for each in results.rows if each.group == group]
        assert {each.what for each in rows} <= texts
        assert {figure(each.median("ipybox"), each.unit) for each in rows} <= texts
        assert {curve.name for each in rows for curve in each.curves} <= texts
        assert any("prefers-color-scheme: dark" in (style.text or "") for style in plot.iter(f"{SVG}style"))


def slower(results: Results, name: str, times: float) -> Results:
    """Returns the results of another commit in which one figure differs."""
    made = results.model_copy(deep=True, update={"commit": "abcdef0", "quick": False})
    (changed,) = (each for each in made.rows if each.name == name)
    changed.samples["ipybox"] = [value * times for value in changed.samples["ipybox"]]
    return made


@pytest.mark.parametrize(
    ("name", "times", "worse"),
    [
        pytest.param("execute", 1.5, True, id="slower"),
        pytest.param("execute", 0.5, False, id="faster"),
        pytest.param("threads", 0.5, True, id="lower rate"),
        pytest.param("threads", 2.0, False, id="higher rate"),
    ],
)
def test_the_history_shows_what_became_worse(
    results: Results,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    times: float,
    worse: bool,
) -> None:
    history, other = tmp_path / "history.jsonl", tmp_path / "other.json"
    other.write_text(slower(results, name, times).model_dump_json())
    assert run(monkeypatch, "--history", history, "record", whole) == 0
    capsys.readouterr()
    assert run(monkeypatch, "--history", history, "compare", other) == int(worse)
    _, change = capsys.readouterr().out.splitlines()
    factor = max(times, 1 / times)
    assert change == f"  {name}: relative to the floor {factor:.2f} times {'worse' if worse else 'better'}"

    now = read_results(other)
    assert f"- {change.strip()}\n" in page(now, {}, entry(results), compare(entry(results), entry(now)))
    assert run(monkeypatch, "--history", history, "record", other) == 0
    assert run(monkeypatch, "--history", history, "compare") == int(worse)


def test_differences_within_the_noise_and_of_another_machine_are_no_changes(results: Results) -> None:
    before = entry(results)
    assert compare(before, entry(slower(results, "execute", 1.15))) == []
    now = entry(slower(results, "execute", 9))
    now.measured["execute"].floor = "another floor"
    (change,) = compare(before, now)
    assert change.what == "as a figure"
    now.machine.cores += 1
    assert compare(before, now) == []


def test_a_run_is_recorded_once(
    results: Results, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history.jsonl"
    assert [run(monkeypatch, "--history", history, "record", whole) for _ in range(2)] == [0, 2]
    (line,) = history.read_text().splitlines()
    assert json.loads(line)["measured"].keys() == {each.name for each in results.rows}
    assert f"{history} has a line for commit {results.commit} already" in capsys.readouterr().err


def test_a_quick_run_is_not_recorded(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    history, quick = tmp_path / "history.jsonl", tmp_path / "quick.json"
    quick.write_text(results.model_copy(update={"quick": True}).model_dump_json())
    assert run(monkeypatch, "--history", history, "record", quick) == 2
    assert not history.exists()
    assert "a quick run is not recorded" in capsys.readouterr().err


def test_a_broken_line_of_the_history_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history.jsonl"
    history.write_text("{}\n")
    assert run(monkeypatch, "--history", history, "compare") == 2
    assert capsys.readouterr().err == f"benchmarks.performance: {history}:1: Field required\n"
