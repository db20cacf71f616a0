"""More sessions of a running executor: their time, CPU time and memory, one alone and 16 concurrently.

The floor of a session is another kernel of `jupyter_client`, in the same program. The peer has no sessions: it is
another executor, with all that belongs to it.
"""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import cache

from benchmarks.measurement import Limit, Measurement, Samples, Setting, Side, take_turns
from benchmarks.processes import cpu_seconds, idle_memory
from benchmarks.subject import Subject, started

#: How many sessions start concurrently, and in a quick run.
MANY, QUICK_MANY = 16, 2

#: An executor of the peer takes 200 MiB and seconds of CPU time.
MOST_OF_PEER = 4


def measurements() -> list[Measurement]:
    """Returns the measurements of this module. Before kernels were forked, they took the time in brackets."""
    group, floor = "sessions", "jupyter_client"
    one, cpu = (Limit(plus=0.104, origin="0.4 × 0.26 s"),), (Limit(plus=0.0875, origin="0.35 × 0.25 s"),)
    many = (Limit(plus=0.96, origin="0.4 × 2.4 s"),)
    return [
        Measurement("session", group, "new session to first result", floor, measure_session, one),
        Measurement("session-cpu", group, "new session, CPU time", floor, measure_cpu, cpu),
        Measurement("sessions", group, f"{MANY} new sessions at once", floor, measure_many, many),
        Measurement(
            "session-memory", group, f"memory per session, with {MANY}", floor, measure_memory, (Limit(plus=25),), "MiB"
        ),
    ]


def measure_session(setting: Setting) -> Samples:
    def open_one(subject: Subject) -> list[float]:
        seconds: float = subject.ask("open", count=1)
        subject.ask("close")
        return [seconds]

    return _take_turns(setting, open_one)


def measure_cpu(setting: Setting) -> Samples:
    def open_one(subject: Subject) -> list[float]:
        before = cpu_seconds(subject.pid)
        subject.ask("open", count=1)
        seconds = cpu_seconds(subject.pid) - before
        subject.ask("close")
        return [seconds]

    return _take_turns(setting, open_one)


def measure_many(setting: Setting) -> Samples:
    seconds, _ = _many_of(setting)
    # Fewer executors of the peer can't be compared with that many sessions.
    return Samples({side: values for side, values in seconds.items() if side != "peer"})


def measure_memory(setting: Setting) -> Samples:
    _, each = _many_of(setting)
    return Samples(each, [f"peer's figure is per executor, with {MOST_OF_PEER}"] if "peer" in each else [])


def _many_of(setting: Setting) -> tuple[dict[Side, list[float]], dict[Side, list[float]]]:
    return _many(setting.rounds, setting.quick, tuple(setting.interpreters.items()))


@cache
def _many(
    rounds: int, quick: bool, interpreters: tuple[tuple[Side, str], ...]
) -> tuple[dict[Side, list[float]], dict[Side, list[float]]]:
    """Returns the seconds that many sessions took, and the MiB of each; measured once for both rows."""
    seconds: dict[Side, list[float]] = {}
    memory: dict[Side, list[float]] = {}
    with _running(Setting(rounds, dict(interpreters), quick)) as subjects:
        alone = {side: idle_memory(subject.pid) for side, subject in subjects.items()}
        for side, subject in subjects.items():
            count = QUICK_MANY if quick else MOST_OF_PEER if side == "peer" else MANY
            seconds[side] = [_open_and_close(subject, count) for _ in range(1 if quick else max(1, rounds // 2))]
            subject.ask("open", count=count)
            memory[side] = [(idle_memory(subject.pid) - alone[side]) / count]
            subject.ask("close")
    return seconds, memory


def _open_and_close(subject: Subject, count: int) -> float:
    seconds: float = subject.ask("open", count=count)
    subject.ask("close")
    return seconds


def _take_turns(setting: Setting, measure: Callable[[Subject], list[float]]) -> Samples:
    with _running(setting) as subjects:
        sides: dict[Side, Callable[[], list[float]]] = {
            side: lambda subject=subject: measure(subject) for side, subject in subjects.items()
        }
        return Samples(take_turns(setting, sides))


@contextmanager
def _running(setting: Setting) -> Generator[dict[Side, Subject]]:
    """Runs a program with a bare kernel, and one with an executor of each ipybox."""
    with ExitStack() as stack:
        subjects: dict[Side, Subject] = {"floor": stack.enter_context(started("bare_sessions.py"))[0]}
        for side, python in setting.interpreters.items():
            subjects[side] = stack.enter_context(started("sessions.py", python=python))[0]
        yield subjects
