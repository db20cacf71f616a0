"""The table of probes: each row is a try to get out, with a control that shows that it works where nothing stops it."""

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Row:
    """What came of one probe: `control` outside of the boundary, `outcome` within."""

    area: str
    probe: str
    control: str
    outcome: str


_rows: list[Row] = []


@pytest.fixture(scope="session")
def table() -> list[Row]:
    """Add a `Row` for each probe that held; the run prints them in the end."""
    return _rows


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Prints the table of probes, unless it would hide what failed."""
    if not _rows or exitstatus:
        return
    terminalreporter.section(f"{len(_rows)} security probes held")
    for area in dict.fromkeys(row.area for row in _rows):
        terminalreporter.write_line(area)
        for row in _rows:
            if row.area == area:
                terminalreporter.write_line(
                    f"  {row.probe:58.58}  outside: {row.control:30.30}  within: {row.outcome:.60}"
                )
