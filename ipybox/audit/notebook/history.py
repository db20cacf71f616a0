"""Keeps the cells of one session in memory, within a limit, to export them as a notebook."""

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from ipybox.audit.notebook.session import Event, ExecutedCell, Note, SessionContent
from ipybox.audit.records import MAX_OTHER
from ipybox.support.errors import CodeExecutionError, ExecutionTimeoutError, RaisedException
from ipybox.support.outputs import Display, ExecutionOutput, Stream

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from ipybox.audit.redaction import Redactor

#: Maximum characters of a cell's code, and of a traceback.
MAX_TEXT = 100_000


class SessionHistory(SessionContent):
    """The cells of one session that have ended.

    Beyond about `limit` bytes of memory, it drops the outputs of the oldest cells, and then the oldest cells.
    """

    def __init__(self, limit: int, redactor: Callable[[], "Redactor"]):
        super().__init__(self._keep)
        self._limit = limit
        self._new_redactor = redactor
        #: Older entries, without outputs, and newer ones, each with its size.
        self._bare: deque[tuple[ExecutedCell | Note, int]] = deque()
        self._whole: deque[tuple[ExecutedCell | Note, int]] = deque()
        self._bytes = 0
        self._cells_dropped = 0

    @cached_property
    def redactor(self) -> "Redactor":
        """Removes secrets; created on first use."""
        return self._new_redactor()

    def for_sibling(self) -> "SessionHistory":
        """Returns an empty history with the same limit and secrets."""
        return SessionHistory(self._limit, self._new_redactor)

    def end(self, cell: ExecutedCell, result: ExecutionOutput | BaseException | None, event: Event) -> None:
        """Adds a cell that has ended, with its result or error, and the event of its end."""
        if isinstance(result, CodeExecutionError | ExecutionTimeoutError):
            result.cell = cell
            output = result.output
        else:
            output = result if isinstance(result, ExecutionOutput) else None
        if output is not None:
            cell.outputs = output.outputs
            if output.notices:
                cell.metadata["notices"] = [self._text(notice) for notice in output.notices]
        if isinstance(result, BaseException):
            cell.error = self._error(result)
        cell.code = self._text(cell.code, MAX_TEXT)
        self.add(event, cell)

    def notebook(self, **metadata: str | None) -> "NotebookNode":
        """Returns the notebook of all cells that have ended."""
        from ipybox.audit.notebook.document import notebook

        cells_without = sum("outputs_dropped" in entry.metadata for entry, _ in self._bare)
        notes: list[str] = []
        if self._cells_dropped:
            notes.append(f"This notebook omits the first {self._cells_dropped:,} cells.")
        if cells_without:
            notes.append(f"This notebook omits the outputs of the first {cells_without:,} cells with outputs.")
        if notes:
            notes.append(f"ipybox keeps a session's last {self._limit:,} bytes (`notebook_bytes`).")
        known: dict[str, Any] = {**metadata, "tool_calls": self.calls.get("")}
        return notebook([entry for entry, _ in (*self._bare, *self._whole)], notes=notes, metadata=known)

    def _keep(self, entry: ExecutedCell | Note) -> None:
        size = _size(entry, self._limit)
        self._whole.append((entry, size))
        self._bytes += size
        while self._bytes > self._limit:
            if self._whole:
                self._strip_oldest()
            else:
                dropped, size = self._bare.popleft()
                self._bytes -= size
                if isinstance(dropped, ExecutedCell):
                    self._cells_dropped += 1
                    self.calls.pop(dropped.metadata.get("cell_id", ""), None)

    def _strip_oldest(self) -> None:
        """Drops the outputs of the oldest entry that still has them. The application's result keeps them."""
        entry, size = self._whole.popleft()
        self._bytes -= size
        if isinstance(entry, ExecutedCell) and entry.outputs:
            entry = replace(entry, outputs=(), metadata={**entry.metadata, "outputs_dropped": True})
            size = _size(entry, self._limit)
        self._bare.append((entry, size))
        self._bytes += size

    def _error(self, exc: BaseException) -> RaisedException:
        raised: RaisedException | None = getattr(exc, "raised", None)
        if raised is None:  # without a message, the task was cancelled, or the consumer of a stream stopped
            value = str(exc) or "the caller stopped waiting before the cell ended"
            raised = RaisedException(type(exc).__name__, value, "")
        traceback = raised.traceback or f"{raised.name}: {raised.value}"
        return RaisedException(
            self._text(raised.name), self._text(raised.value, MAX_TEXT), self._text(traceback, MAX_TEXT)
        )

    def _text(self, text: str, limit: int = MAX_OTHER) -> str:
        return self.redactor.text(text, limit)


def _size(value: object, enough: int) -> int:
    """Returns the approximate number of bytes that a value takes in memory; stops counting beyond `enough`."""
    total, waiting = 0, [value]
    while waiting and total <= enough:
        each = waiting.pop()
        total += sys.getsizeof(each)
        match each:
            case dict():
                items = cast(dict[str, object], each)
                waiting += [*items.keys(), *items.values()]
            case list() | tuple():
                waiting += cast("list[object] | tuple[object, ...]", each)
            case ExecutedCell():
                waiting += [each.code, each.metadata, each.tool_calls, each.outputs]
                waiting += [] if each.error is None else [each.error.value, each.error.traceback]
            case Note():
                waiting.append(each.text)
            case Stream():
                waiting.append(each.text)
            case Display():
                waiting += [dict(each.data), dict(each.metadata)]
            case _:
                pass
    return total
