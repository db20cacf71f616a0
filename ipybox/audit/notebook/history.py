"""Keeps the cells of one session in memory, within a limit, to export them as a notebook."""

import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from ipybox.audit.notebook.session import Event, ExecutedCell, Note, SessionContent
from ipybox.audit.records import MAX_OTHER
from ipybox.support.errors import CodeExecutionError, ExecutionTimeoutError, RaisedException
from ipybox.support.outputs import ExecutionOutput

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
        super().__init__()
        self._limit = limit
        self._new_redactor = redactor
        #: The size of each entry, and the number of the oldest ones that have lost their outputs.
        self._sizes: list[int] = []
        self._bare = 0
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

        cells_without = sum("outputs_dropped" in entry.metadata for entry in self.entries)
        notes: list[str] = []
        if self._cells_dropped:
            notes.append(f"This notebook omits the first {self._cells_dropped:,} cells.")
        if cells_without:
            notes.append(f"This notebook omits the outputs of the first {cells_without:,} cells with outputs.")
        if notes:
            notes.append(f"ipybox keeps a session's last {self._limit:,} bytes (`notebook_bytes`).")
        known: dict[str, Any] = {**metadata, "tool_calls": self.calls.get("")}
        return notebook(self.entries, notes=notes, metadata=known)

    def append(self, entry: ExecutedCell | Note) -> None:
        """Adds an entry, and makes room for it."""
        super().append(entry)
        self._sizes.append(_size(entry, self._limit))
        self._bytes += self._sizes[-1]
        while self._bytes > self._limit:
            if self._bare < len(self.entries):
                self._drop_outputs(self._bare)
                self._bare += 1
            else:
                self._drop_oldest()

    def _drop_outputs(self, number: int) -> None:
        """Drops the outputs of an entry. The application's result keeps them."""
        entry = self.entries[number]
        if isinstance(entry, ExecutedCell) and entry.outputs:
            entry = replace(entry, outputs=(), metadata={**entry.metadata, "outputs_dropped": True})
            self._bytes -= self._sizes[number]
            self.entries[number], self._sizes[number] = entry, _size(entry, self._limit)
            self._bytes += self._sizes[number]

    def _drop_oldest(self) -> None:
        entry = self.entries.pop(0)
        self._bytes -= self._sizes.pop(0)
        self._bare -= 1
        if isinstance(entry, ExecutedCell):
            self._cells_dropped += 1
            self.calls.pop(entry.metadata.get("cell_id", ""), None)

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
        if isinstance(each, dict):
            items = cast(dict[str, object], each)
            waiting += [*items.keys(), *items.values()]
        elif isinstance(each, list | tuple):
            waiting += cast("list[object] | tuple[object, ...]", each)
        elif is_dataclass(each):
            waiting += [getattr(each, attribute.name) for attribute in fields(each)]
    return total
