"""Records an action of the host that takes its time, such as a registration."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ipybox.audit.steps import Outcome, seconds_since

if TYPE_CHECKING:
    from ipybox.audit.audit import Audit


@contextmanager
def recorded(audit: "Audit | None", event: str, **fields: Any) -> Generator[dict[str, Any]]:
    """Records an action that takes its time, with how it ends; yields what else is known of it, to be added to.

    Args:
        audit: Where to record it; None for nowhere.
        event: What it is.
        fields: What is known before; it is written without secrets.

    Raises:
        AuditError: If it can't be recorded; the action may not begin then.
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
