"""OpenTelemetry spans for cells and their tool calls, if the application uses tracing.

Such an application has imported the API; otherwise, nothing is imported. Names follow the semantic conventions:
https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
"""

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.util.types import AttributeValue


def start_span(name: str, attributes: "Mapping[str, AttributeValue]", *, parent: "Span | None" = None) -> "Span | None":
    """Returns a new child span of `parent` or the current span, for `end_span`; None without tracing."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    context = None if parent is None else trace.set_span_in_context(parent)
    span = _tracer().start_span(name, context, attributes=attributes)
    return span if span.get_span_context().is_valid else None


def current(span: "Span") -> AbstractContextManager[object]:
    """Makes a span the parent of spans that start in the context, without ending it."""
    from opentelemetry import trace

    return trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False)


def end_span(span: "Span", error_type: str | None) -> None:
    """Ends a span; `error_type` marks it as failed."""
    if error_type is not None:
        from opentelemetry.trace import StatusCode

        span.set_attribute("error.type", error_type)
        span.set_status(StatusCode.ERROR)
    span.end()


def ids(span: "Span") -> dict[str, str]:
    """Returns the fields that identify a span in a log.

    https://opentelemetry.io/docs/specs/otel/compatibility/logging_trace_context/
    """
    context = span.get_span_context()
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


@cache
def _tracer() -> "Tracer":
    from opentelemetry import trace

    return trace.get_tracer("ipybox")
