"""What is measured for the simulation, and what a file keeps of it."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

FILE = Path(__file__).parents[1] / "scaling.json"


class _Known(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Demand(_Known):
    """CPU time of processes, in seconds.

    Attributes:
        application: Of the application.
        code: Of kernel, gateway and node, wherever they run.
        server: Of the MCP server, and of the process that guards it.
    """

    application: float
    code: float
    server: float


class Point(_Known):
    """Tool calls of some threads of one kernel.

    Attributes:
        threads: How many.
        rate: Calls per second.
        call: What a call takes.
    """

    threads: int
    rate: float
    call: Demand


class Place(_Known):
    """Kernels of the application's machine (`local`), or of a node, on the same machine here (`engine`).

    Attributes:
        points: Tool calls, by threads.
        megabyte: What 1 MB of output takes.
        output: MB of output in a second.
    """

    points: list[Point]
    megabyte: Demand
    output: float


class Figures(_Known):
    """A measurement.

    Attributes:
        date: When it was made.
        commit: Of which commit.
        machine: On which machine.
        cores: How many cores it has.
        load: The load of the machine at the start, over the last minute.
        local: Kernels on the application's machine.
        engine: Kernels on a node.
    """

    date: str
    commit: str
    machine: str
    cores: int
    load: float
    local: Place
    engine: Place


class FiguresError(Exception):
    """The figures can't be read."""


def read_figures(file: Path = FILE) -> Figures:
    """Returns what a measurement has written.

    Raises:
        FiguresError: If it is not valid.
        OSError: If it can't be read.
    """
    try:
        return Figures.model_validate_json(file.read_bytes())
    except ValidationError as exc:
        raise FiguresError(f"{file}: {exc}") from exc
