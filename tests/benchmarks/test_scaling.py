"""The simulation of hosts, and the page that shows it."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.scaling.figures import Demand, FiguresError, read_figures
from benchmarks.scaling.simulation import Load, simulate
from tests.servers import ROOT

CALL = Demand(application=0.002, code=0.001, server=0.001)


def test_one_thread_waits_for_nothing() -> None:
    outcome = simulate(Load(), CALL, cores=8, seconds=20)

    assert outcome.rate == pytest.approx(1 / 0.004, rel=0.05)


def test_the_application_is_the_limit_of_many_sessions_and_the_cores_are_if_there_is_one() -> None:
    many = Load(sessions=30)

    assert simulate(many, CALL, cores=64, remote=True, seconds=5).rate == pytest.approx(1 / 0.002, rel=0.05)
    assert simulate(many, CALL, cores=1, seconds=5).rate == pytest.approx(1 / 0.004, rel=0.05)
    assert simulate(many, CALL, cores=1, remote=True, seconds=5).rate == pytest.approx(1 / 0.003, rel=0.05)


def test_sessions_that_pause_are_not_slower_than_their_pauses() -> None:
    outcome = simulate(Load(sessions=10, pause=1), CALL, cores=2, seconds=100)

    assert outcome.rate == pytest.approx(10, rel=0.1)
    assert outcome.percentile(50) < outcome.percentile(95) < 0.05


def test_the_page_shows_the_measurement_and_its_plots(tmp_path: Path) -> None:
    # In a process of its own, because matplotlib keeps the files of fonts open.
    command = [sys.executable, "-m", "benchmarks.scaling", "write", "--quick", "--docs", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)

    page, shown = (tmp_path / "scaling.md").read_text(), (ROOT / "dev/scaling.md").read_text()
    measured = page.split("## The check")[0]
    assert measured == shown.split("## The check")[0]  # what follows depends on how long it is simulated
    headings = [line for line in page.splitlines() if line.startswith("#")]
    assert headings == [line for line in shown.splitlines() if line.startswith("#")]
    for name in ("check", "sessions"):
        assert (tmp_path / f"scaling/{name}.svg").read_text().startswith("<?xml")
        assert (ROOT / f"dev/scaling/{name}.svg").exists()


def test_figures_that_are_not_valid_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    file.write_text("{}")

    with pytest.raises(FiguresError, match=str(file)):
        read_figures(file)
