"""Writes the lines of an audit log in a thread of its own.

If another process holds the log's lock or the disk is slow, lines wait in memory, up to a limit. Only an action that
needs its line on disk waits for it.
"""

import asyncio
import logging
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress

from ipybox.audit.log import AuditLogFile, not_written
from ipybox.audit.records import utc_now
from ipybox.support.errors import AuditError
from ipybox.support.way_in import setting

logger = logging.getLogger(__name__)

#: Maximum bytes of waiting lines; further lines are rejected.
MAX_WAITING = 4 << 20

#: Seconds to wait for a line that must be written before an action, and for the line of an action that has ended.
WRITE_LIMIT = 10.0
FLUSH_LIMIT = 0.1

#: Seconds for which the event loop itself is blocked: most lines are written before it could run another task.
BLOCKING = 0.001


class LogWriter:
    """Appends lines to a file in order, until `close`.

    Lines that could not be written are counted in a `gap` before the next line.
    """

    def __init__(self, file: AuditLogFile):
        self._file = file
        self._changed = threading.Condition()
        #: Waiting lines, each with the number of events that are missing if it can't be written.
        self._waiting: list[tuple[bytes, int, Future[None]]] = []
        #: Bytes of lines that are not written yet.
        self._bytes = 0
        #: Whether the last write failed or lines are missing, and how many are missing since the last gap.
        self.failed = False
        self._missing = 0
        #: The outcome of each thread's last line: executors in other event loops may share the log.
        self._own = threading.local()
        self._closing = False
        self._thread: threading.Thread | None = None

    def add(self, line: bytes) -> None:
        """Adds a line, or an empty one to test whether the log can be written. Never raises: see `flush`."""
        written = self._own.last = Future[None]()
        events = int(bool(line))
        with self._changed:
            if self._bytes >= MAX_WAITING:
                self.failed = True
                self._missing += events
                written.set_exception(self.blocked(f"{MAX_WAITING:,} bytes are waiting to be written"))
                return
            if self._missing:
                line = b'{"time":"%s","event":"gap","missing":%d}\n%s' % (utc_now().encode(), self._missing, line)
                events += self._missing
                self._missing = 0
            self._waiting.append((line, events, written))
            self._bytes += len(line)
            self._closing = False
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="ipybox-audit", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    async def flush(self, *, required: bool) -> None:
        """Waits until this thread's last line is written, for `WRITE_LIMIT` if that is required, else `FLUSH_LIMIT`.

        Raises:
            AuditError: If it is required and can't be written in time.
        """
        limit = WRITE_LIMIT if required else FLUSH_LIMIT
        line: Future[None] | None = getattr(self._own, "last", None)
        if line is None:
            return None
        try:
            with suppress(TimeoutError):
                return line.result(BLOCKING)
            async with asyncio.timeout(limit):
                await asyncio.shield(asyncio.wrap_future(line))
        except TimeoutError:
            if required:
                raise self.blocked(f"nothing could be written for {limit:g} s") from None
        except AuditError:
            if required:
                raise

    def blocked(self, reason: str) -> AuditError:
        """Returns the error for lines that can't currently be written."""
        remedy = f"end the process that holds {self._file.lock_path}, or set {setting('audit')} to off"
        return AuditError(f"can't write the audit log: {reason}; {remedy}")

    def close(self) -> None:
        """Closes the file when all lines are written; a later line opens it again. Blocks up to `WRITE_LIMIT`.

        Remaining lines are written if that becomes possible before the process ends. If other executors add lines in
        the meantime, the file stays open.
        """
        with self._changed:
            thread, self._closing = self._thread, True
            self._changed.notify_all()
            ended = self._changed.wait_for(lambda: not (self._closing and thread and thread.is_alive()), WRITE_LIMIT)
        if not ended:
            logger.error("%s", self.blocked(f"{self._bytes:,} bytes could not be written for {WRITE_LIMIT:g} s"))

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                batch, self._waiting = self._waiting, []
                if not batch:
                    self._file.close()
                    self._thread, self._closing = None, False
                    self._changed.notify_all()
                    return
            lines, events, outcomes = zip(*batch, strict=True)
            failure, left = None, deque(lines)
            try:
                self._file.append(left)
            except Exception as exc:
                failure = not_written(exc)
                if not self.failed:
                    logger.error("refusing to run anything for now: %s", failure)
            done = len(lines) - len(left)
            with self._changed:
                self._bytes -= sum(map(len, lines))
                self._missing += sum(events[done:])
                self.failed = failure is not None or self._missing > 0
            for number, written in enumerate(outcomes):
                written.set_exception(failure) if number >= done else written.set_result(None)
