"""The metrics of an MCP server, in Prometheus format.

Labels have few values, all defined by ipybox except for the names of nodes that are running kernels. They never contain
the name of a session, tool or server, or text from code. Gauges are read on request.
"""

import socket
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ipybox.mcp_server.kernel_sessions import KernelSessions, State

#: Bucket limits in seconds: calls take milliseconds, people's decisions and cluster queues take minutes.
CALL_BUCKETS = (0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300)
WAIT_BUCKETS = (0.1, 1, 5, 15, 60, 300, 1800)


class ServerMetrics:
    """Counts what the sessions of a server do."""

    def __init__(self, sessions: KernelSessions):
        self._registry = registry = CollectorRegistry()
        calls = partial(Histogram, buckets=CALL_BUCKETS, registry=registry)
        waits = partial(Histogram, buckets=WAIT_BUCKETS, registry=registry)
        events = partial(Counter, registry=registry)
        self._cells = calls("ipybox_cell_duration_seconds", "Duration of cells.", ["outcome"])
        self._calls = calls(
            "ipybox_tool_call_duration_seconds", "Duration of tool calls, including approval.", ["outcome"]
        )
        self._decisions = waits(
            "ipybox_approval_duration_seconds", "Time until tool calls were accepted or rejected.", ["accepted", "by"]
        )
        self._denials = events("ipybox_denials", "Calls denied without an approval request.", ["by"])
        self._deaths = events("ipybox_kernel_deaths", "Kernels replaced because they died or did not stop.")
        self._idle = events("ipybox_idle_sessions_stopped", "Sessions stopped by session_idle_timeout.")
        self._jobs = events("ipybox_jobs", "Engine job events.", ["action"])
        started = "Time from starting an engine's command until its node ran or failed."
        self._waits = waits("ipybox_job_start_duration_seconds", started, ["result"])
        limit = Gauge("ipybox_sessions_limit", "Maximum number of sessions (max_sessions).", registry=registry)
        limit.set(sessions.limit)
        about = "Sessions that are running, starting, or waiting for an engine's node."
        states = Gauge("ipybox_sessions", about, ["state"], registry=registry)
        for state in get_args(State):
            states.labels(state).set_function(partial(sessions.count, state))
        registry.register(_KernelCollector(sessions))
        ProcessCollector(registry=registry)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Returns all metrics and their content type, for a client's Accept header."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def observe(self, event: str, fields: Mapping[str, Any]) -> None:
        """Counts an event, as a `SessionObserver`."""
        match event:
            case "cell":
                self._cells.labels(fields["outcome"]).observe(fields["duration"])
            case "tool_call":
                self._calls.labels(fields["outcome"]).observe(fields["duration"])
            case "decision":
                accepted = str(fields["accepted"]).lower()
                self._decisions.labels(accepted, fields["by"]).observe(fields["duration"])
            case "denial":
                self._denials.labels(fields["by"]).inc()
            case "session" if fields["action"] == "restart":
                self._deaths.inc()
            case "session" if fields["action"] == "idle":
                self._idle.inc()
            case "job":
                self._jobs.labels(fields["action"]).inc()
                if fields["waited"] is not None:
                    self._waits.labels(fields["action"]).observe(fields["waited"])
            case _:
                pass


class _KernelCollector(Collector):
    def __init__(self, sessions: KernelSessions):
        self._sessions = sessions
        self._here = socket.gethostname()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        kernels = GaugeMetricFamily("ipybox_kernels", "Session kernels by machine.", labels=["node"])
        for node, count in self._sessions.nodes.items():
            kernels.add_metric([self._here if node is None else node], count)
        return [kernels]
