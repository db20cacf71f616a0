"""Spans of OpenTelemetry: tool calls under their cells, those of the MCP SDK under them, by its own SDK."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracer, NoOpTracerProvider, SpanContext, SpanKind, StatusCode

from ipybox import CodeExecutionError, CodeExecutor
from tests import servers
from tests.audit.lines import events

CALLS = """
from registered import scripted
scripted.run_sync("echo", {"text": "hello"})
scripted.run_sync("fail", {"text": "reason"})
"""


class SwitchedTracer(NoOpTracer):
    """Makes real spans while `real` is set."""

    real: ClassVar[trace.Tracer | None] = None

    def start_span(self, *args: Any, **options: Any) -> trace.Span:
        return (self.real or super()).start_span(*args, **options)

    def start_as_current_span(self, *args: Any, **options: Any) -> Any:
        return (self.real or super()).start_as_current_span(*args, **options)


class SwitchedProvider(NoOpTracerProvider):
    """Can be the provider of the process: a process has one, for ever, and other tests want no spans."""

    def get_tracer(self, *args: Any, **options: Any) -> SwitchedTracer:
        return SwitchedTracer()


@pytest.fixture(scope="session")
def provider() -> None:
    trace.set_tracer_provider(SwitchedProvider())


@pytest.fixture
def spans(provider: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans of this test."""
    made = InMemorySpanExporter()
    recording = TracerProvider()
    recording.add_span_processor(SimpleSpanProcessor(made))
    monkeypatch.setattr(SwitchedTracer, "real", recording.get_tracer("tests"))
    yield made
    monkeypatch.undo()
    recording.shutdown()


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


async def test_tool_calls_are_under_their_cell_and_requests_of_mcp_under_them(
    tmp_path: Path, spans: InMemorySpanExporter
):
    servers.register(tmp_path, scripted=servers.scripted())
    async with CodeExecutor(working_dir=tmp_path, audit="full") as executor:
        with trace.get_tracer("application").start_as_current_span("turn") as turn, pytest.raises(CodeExecutionError):
            await executor.execute(CALLS)

    (cell,), (echo,), (fail,) = (
        named(spans, name) for name in ("execute_cell", "execute_tool echo", "execute_tool fail")
    )
    assert parent_of(cell) == turn.get_span_context().span_id
    assert parent_of(echo) == parent_of(fail) == context_of(cell).span_id
    (sent,) = named(spans, "MCP send tools/call echo")
    assert (sent.kind, parent_of(sent)) == (SpanKind.CLIENT, context_of(echo).span_id)
    assert len({context_of(span).trace_id for span in spans.get_finished_spans()}) == 1

    assert (
        dict(echo.attributes or {}).items()
        >= {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "echo",
            "ipybox.server.name": "scripted",
        }.items()
    )
    assert [(event.name, dict(event.attributes or {})) for event in echo.events] == [
        ("decision", {"accepted": True, "by": "auto"})
    ]
    assert (fail.attributes or {})["error.type"] == "tool_error"
    assert fail.status.status_code is StatusCode.ERROR
    assert (cell.attributes or {})["error.type"] == "error"
    assert "hello" not in "".join(span.to_json() for span in spans.get_finished_spans()), "arguments are no attributes"

    call, _ = events(tmp_path, "tool_call")
    assert call["tool_call_id"] == (echo.attributes or {})["gen_ai.tool.call.id"]
    assert call["cell_id"] == (cell.attributes or {})["ipybox.cell.id"]


async def test_calls_of_cells_at_once_are_under_their_own(tmp_path: Path, spans: InMemorySpanExporter):
    servers.register(tmp_path, scripted=servers.scripted())
    code = "from registered import scripted; print(scripted.run_sync('echo', {'text': 'x'}))"
    async with CodeExecutor(working_dir=tmp_path) as executor, executor.sibling() as other:
        await asyncio.gather(executor.execute(code), other.execute(code))
    cells = {context_of(span).span_id for span in named(spans, "execute_cell")}
    assert {parent_of(call) for call in named(spans, "execute_tool echo")} == cells
    assert len(cells) == 2


def test_nothing_is_loaded_for_those_who_do_not_trace():
    imports = "import sys, ipybox.code_exec.executor; from ipybox.audit import records"
    code = f"{imports}; assert records._start_span('x', {{}}) is None"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print([name for name in sys.modules if 'opentelemetry' in name])"],
        capture_output=True,
        text=True,
        timeout=servers.WAIT,
        check=True,
    )
    assert done.stdout.strip() == "[]"
