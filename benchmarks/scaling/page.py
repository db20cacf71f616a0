"""Writes `dev/scaling.md` and its plots from a measurement."""

from pathlib import Path

from benchmarks.scaling.figures import Figures, Place
from benchmarks.scaling.plots import Line, plot
from benchmarks.scaling.simulation import Load, simulate

#: Sessions that are simulated, and hosts that share them.
SESSIONS = (25, 50, 100, 200, 400)
HOSTS = (1, 2, 4)

#: Seconds between the tool calls of a session, on average.
PAUSE = 1.0

CHECK, LOAD = "scaling/check.svg", "scaling/sessions.svg"

TEMPLATE = Path(__file__).with_name("page.md")


def write(figures: Figures, docs: Path, *, quick: bool = False) -> None:
    """Writes the page and its plots.

    Args:
        figures: What was measured.
        docs: The directory.
        quick: With less of everything.

    Raises:
        OSError: If a file can't be written.
    """
    seconds = 2 if quick else 20
    (docs / CHECK).parent.mkdir(parents=True, exist_ok=True)
    check = [
        Line("measured", "ink", [(point.threads, point.rate) for point in figures.local.points]),
        Line("simulated", "ipybox", _simulated(figures, seconds)),
    ]
    (docs / CHECK).write_text(plot("Tool calls per second of one kernel", "threads", check))
    shared = [_shared(figures, hosts, seconds) for hosts in HOSTS]
    lines = [
        Line(f"{hosts} hosts" if hosts > 1 else "1 host", color, line)
        for hosts, color, line in zip(
            HOSTS, ("peer", "ipybox", "ink"), [[(n, p95 * 1000) for n, _, p95 in row] for row in shared], strict=True
        )
    ]
    (docs / LOAD).write_text(plot("95th percentile of a tool call, in ms, with an engine", "sessions", lines))
    text = TEMPLATE.read_text().format(
        machine=figures.machine,
        date=figures.date,
        commit=figures.commit,
        load=figures.load,
        check=_check_table(check),
        demands=_demand_table(figures),
        limits=_limit_table(figures),
        sessions=_session_table(shared),
        error=f"{_error(check):.0%}",
    )
    (docs / "scaling.md").write_text(text)


def _simulated(figures: Figures, seconds: float) -> list[tuple[float, float]]:
    return [
        (
            point.threads,
            simulate(
                Load(threads=point.threads), figures.local.points[0].call, cores=figures.cores, seconds=seconds
            ).rate,
        )
        for point in figures.local.points
    ]


def _shared(figures: Figures, hosts: int, seconds: float) -> list[tuple[int, float, float]]:
    """Returns sessions, calls per second of all hosts, and the 95th percentile in seconds."""
    call = figures.engine.points[0].call
    rows: list[tuple[int, float, float]] = []
    for sessions in SESSIONS:
        load = Load(sessions=sessions // hosts, pause=PAUSE)
        outcome = simulate(load, call, cores=figures.cores, remote=True, seconds=seconds)
        rows.append((sessions, outcome.rate * hosts, outcome.percentile(95)))
    return rows


def _error(lines: list[Line]) -> float:
    """Returns by how much the simulation differs from the measurement, at most."""
    measured, simulated = lines
    pairs = zip(measured.points, simulated.points, strict=True)
    return max(abs(model - real) / real for (_, real), (_, model) in pairs)


def _check_table(lines: list[Line]) -> str:
    measured, simulated = lines
    pairs = zip(measured.points, simulated.points, strict=True)
    return "\n".join(f"| {threads:g} | {real:.0f} | {model:.0f} |" for (threads, real), (_, model) in pairs)


def _demand_table(figures: Figures) -> str:
    def row(name: str, place: Place) -> str:
        call, byte = place.points[0].call, place.megabyte
        parts = [f"{1000 * value:.2f}" for value in (call.application, call.server, call.code, byte.application)]
        return f"| {name} | {' | '.join(parts)} | {place.output:.0f} |"

    return "\n".join((row("this machine", figures.local), row("a node", figures.engine)))


def _limit_table(figures: Figures) -> str:
    def row(name: str, place: Place, host: float) -> str:
        call = place.points[0].call
        loop, all_cores = 1 / call.application, figures.cores / (call.application + call.server + host)
        return f"| {name} | {loop:.0f} | {all_cores:.0f} | {1 / place.megabyte.application:.0f} |"

    local, engine = figures.local, figures.engine
    return "\n".join((row("this machine", local, local.points[0].call.code), row("a node", engine, 0)))


def _session_table(shared: list[list[tuple[int, float, float]]]) -> str:
    rows: list[str] = []
    for number, sessions in enumerate(SESSIONS):
        cells = [f"{row[number][1]:.0f} /s, {1000 * row[number][2]:.0f} ms" for row in shared]
        rows.append(f"| {sessions} | {' | '.join(cells)} |")
    return "\n".join(rows)
