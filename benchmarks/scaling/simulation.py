"""Simulates tool calls on one host: sessions that share cores, one application, and an MCP server for each session.

A call passes the kernel, the application, the MCP server, the application and the kernel again. Each of these processes
handles one call at a time, because it is a process of Python, and needs a core while it works. With an engine, kernels
need no core of the host.
"""

import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from benchmarks.scaling.figures import Demand


@dataclass(frozen=True)
class Load:
    """What a host does.

    Attributes:
        sessions: Kernels.
        threads: Threads in each that call tools.
        pause: Seconds between the end of a call and the next one of its thread, on average.
    """

    sessions: int = 1
    threads: int = 1
    pause: float = 0.0


@dataclass
class Outcome:
    """What a simulation has shown.

    Attributes:
        seconds: How long it was, after its start.
        times: What each call took, in seconds.
    """

    seconds: float
    times: list[float] = field(default_factory=list[float])

    @property
    def rate(self) -> float:
        """Calls per second."""
        return len(self.times) / self.seconds

    def percentile(self, percent: float) -> float:
        """Returns the time that so many calls do not exceed."""
        ordered = sorted(self.times)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def simulate(
    load: Load, call: Demand, *, cores: int, remote: bool = False, seconds: float = 10, seed: int = 1
) -> Outcome:
    """Returns what happens in some seconds, after a tenth of them.

    Args:
        load: What the host does.
        call: CPU time of one call.
        cores: Cores of the host.
        remote: Whether kernels run on other machines.
        seconds: How long.
        seed: Of the random pauses and times.
    """
    environment = simpy.Environment()
    chance = random.Random(seed)
    new: Any = simpy.Resource  # its annotations are partial
    processors, application = new(environment, cores), new(environment)
    outcome = Outcome(seconds)

    def work(process: Any, mean: float, host: bool = True) -> Generator[Any, Any, None]:
        with process.request() as turn:
            yield turn
            if not host:
                yield environment.timeout(chance.expovariate(1 / mean) if mean else 0)
                return
            with processors.request() as core:
                yield core
                yield environment.timeout(chance.expovariate(1 / mean) if mean else 0)

    def thread(kernel: Any, server: Any) -> Generator[Any, Any, None]:
        while True:
            if load.pause:
                yield environment.timeout(chance.expovariate(1 / load.pause))
            began = environment.now
            yield from work(kernel, call.code / 2, not remote)
            yield from work(application, call.application / 2)
            yield from work(server, call.server)
            yield from work(application, call.application / 2)
            yield from work(kernel, call.code / 2, not remote)
            if began >= seconds / 10:
                outcome.times.append(environment.now - began)

    for _ in range(load.sessions):
        kernel, server = new(environment), new(environment)
        for _ in range(load.threads):
            environment.process(thread(kernel, server))
    environment.run(until=seconds * 1.1)
    return outcome
