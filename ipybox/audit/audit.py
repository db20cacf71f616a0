"""What goes into the audit log: events as lines of JSON.

What can't be written down is not done: who is about to do something asks by `Audit.require` first. What has happened
already is counted while the log can't be written, and the next line says how much is missing.
"""

import json
import logging
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ipybox.audit.digests import digest, key_path
from ipybox.audit.log import LogFile
from ipybox.audit.redaction import Redactor, secrets_among
from ipybox.errors import AuditError
from ipybox.keys import lasting_key
from ipybox.vars import variables
from ipybox.workspace.env_file import read_env_file

logger = logging.getLogger(__name__)

#: Whether code and arguments are written down, without secrets, beside their hashes.
Detail = Literal["full", "hash"]

#: Characters of code and of a call's arguments that are written down, and of names and other texts.
MAX_CODE = 8000
MAX_ARGUMENTS = 4000
MAX_OTHER = 1000


class Audit:
    """Writes the audit log of a workspace, `.ipybox/audit.jsonl`. Executors of one process can share it.

    Args:
        workspace: The workspace.
        detail: `full` has code and arguments, without secrets and cut; `hash` has their keyed hashes only
            (`ipybox.audit.digests`).
        secrets: Values that are taken out of all that is written, by the names that stand for them. Those of the
            workspace's `.env` and of the environment are known anyway, by their names or their looks.
        file: Where to write, by default the workspace's own log.
    """

    def __init__(
        self,
        workspace: Path,
        detail: Detail = "full",
        *,
        secrets: Mapping[str, str] | None = None,
        file: LogFile | None = None,
    ):
        self.file = file or LogFile(workspace)
        self._key: bytes | None = None
        self._full = detail == "full"
        self._redactor = Redactor()
        self.know({**os.environ, **read_env_file(workspace)})
        self._redactor.know(secrets or {})
        #: Lines that could not be written, and why, if that holds still.
        self._missing = 0
        self._failure: str | None = None

    def open(self) -> None:
        """Makes sure that the log can be written.

        Raises:
            AuditError: If it can't; the message says what to do.
        """
        try:
            self._key = lasting_key(key_path())
        except (OSError, ValueError) as exc:
            raise AuditError(f"the key of the audit log's hashes can't be read: {exc}") from exc
        self.file.check()

    def close(self) -> None:
        """Closes the file, which is opened again for a later line."""
        self.file.close()

    def know(self, variables: Mapping[str, str]) -> None:
        """Takes those of the values that are secrets out of what is written from now on."""
        self._redactor.know(secrets_among(variables))

    def hide(self, values: Iterable[str]) -> None:
        """Takes these values out of what is written from now on, which no variables stand for."""
        self._redactor.hide(values)

    def require(self) -> None:
        """Makes sure that lines can be written, as far as is known, before more happens.

        Raises:
            AuditError: If they can't; the message says what to do.
        """
        if self._missing:
            self.record("gap", missing=self._missing)
        if self._failure is not None:
            raise AuditError(self._failure)

    def record(self, event: str, **fields: object) -> None:
        """Writes a line, without the fields that are None. It does not raise: see `require`."""
        if self._missing and event != "gap":
            self.record("gap", missing=self._missing)
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line: dict[str, object] = {"time": now, "event": event}
        line.update((name, value) for name, value in fields.items() if value is not None)
        # ASCII, as a terminal obeys much of the rest.
        data = json.dumps(line, separators=(",", ":"), default=str).encode() + b"\n"
        try:
            self.file.append(data)
        except AuditError as exc:
            self._missing += event != "gap"
            if self._failure is None:
                logger.error("nothing more runs for now: %s", exc)
            self._failure = str(exc)
        else:
            self._failure = None
            self._missing = 0 if event == "gap" else self._missing

    def text(self, text: str | None) -> str | None:
        """Returns a name, a message or the like as it is written."""
        return None if text is None else self._redactor.text(text, MAX_OTHER)

    def error(self, text: str | None) -> str | None:
        """Returns what a tool says of its failure as it is written: not at all if its arguments are not."""
        return self.text(text) if self._full else None

    def code(self, code: str) -> dict[str, Any]:
        """Returns what is written of code."""
        hashed = {"code_hash": digest(code, self._key), "code_chars": len(code)}
        return {"code": self._redactor.text(code, MAX_CODE), **hashed} if self._full else hashed

    def arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what is written of a call's arguments. It can be called in a thread."""
        try:
            hashed = {"arguments_hash": digest(arguments, self._key)}
        except RecursionError:  # nested deeper than any tool takes them
            hashed = {}
        return {"arguments": self._redactor.value(arguments, MAX_ARGUMENTS), **hashed} if self._full else hashed

    def value(self, value: Any) -> Any:
        """Returns anything else that JSON can express as it is written."""
        return self._redactor.value(value, MAX_ARGUMENTS)

    def know_variables_of(self, value: Mapping[str, Any]) -> None:
        """Takes the secrets out that the placeholders in a server's parameters stand for."""
        self.know({name: os.environ[name] for name in variables(value) if name in os.environ})
