"""Records a longer action of the application, such as a registration."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ipybox.audit.records import Outcome, seconds_since

if TYPE_CHECKING:
    from ipybox.audit.audit import AuditLog


@contextmanager
def recorded(audit: "AuditLog | None", event: str, **fields: Any) -> Generator[dict[str, Any]]:
    """Records an action and its outcome; yields a dictionary for further fields.

    Args:
        audit: The audit log; None to record nothing.
        event: The name of the event.
        fields: Fields known in advance; they are written without secrets.

    Raises:
        AuditError: If it can't be recorded; the action must not start then.
    """
    if audit is None:
        yield fields
        return
    audit.require()
    audit.know_variables_of(fields)
    started = time.monotonic()
    outcome: Outcome = "ok"
    try:
        yield fields
    except BaseException as exc:
        outcome = "error" if isinstance(exc, Exception) else "cancelled"
        fields["error"] = str(exc) or type(exc).__name__
        raise
    finally:
        written = {name: audit.value(value) for name, value in fields.items()}
        audit.record(event, **written, outcome=outcome, duration=seconds_since(started))
