"""The content of the audit log: events as lines of JSON.

While the log can't be written, no new action starts: callers check `AuditLog.require` first. Events of actions that
have already happened are counted, and the next line says how many are missing.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from ipybox.audit.log import AuditLogFile
from ipybox.audit.records import MAX_CODE, utc_now
from ipybox.audit.redaction import secrets_among, workspace_redactor
from ipybox.audit.writer import LogWriter
from ipybox.support.errors import AuditError
from ipybox.support.placeholders import variables
from ipybox.support.private_file import load_or_create_key
from ipybox.support.state import state_dir

#: `full` records code and arguments, without secrets, in addition to their hashes.
Detail = Literal["full", "hash"]

#: The fields of tool calls that `hash` omits.
_FULL_ONLY = ("arguments", "error")

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class AuditLog:
    """Writes the audit log of a workspace, `.ipybox/audit.jsonl`. Executors of one process can share it.

    Args:
        workspace: The workspace.
        detail: `full` for code and arguments, truncated and without secrets; `hash` for their keyed hashes only, see
            `digest`.
        secrets: Values to remove from everything written, by the names that replace them, in addition to secrets in
            the environment and the workspace's `.env`.
    """

    def __init__(self, workspace: Path, detail: Detail = "full", *, secrets: Mapping[str, str] | None = None):
        if detail not in get_args(Detail):
            raise ValueError(f"invalid audit={detail!r}: use 'full' or 'hash', or 'off' for an executor")
        self.file = AuditLogFile(workspace)
        self._full = detail == "full"
        self.redactor = workspace_redactor(workspace, {})
        self.redactor.add_secrets(secrets or {})
        #: The last server parameters without placeholders.
        self._without_variables: Mapping[str, Any] = {}
        self.writer = LogWriter(self.file)

    def open(self) -> None:
        """Raises an AuditError if the log can't be written."""
        try:
            _ = self._key
        except (OSError, ValueError) as exc:
            raise AuditError(f"can't read or create the key for the audit log's hashes: {exc}") from exc
        self.file.check()

    def close(self) -> None:
        """Closes the file when all lines are written; see `LogWriter.close`."""
        self.writer.close()

    def add_secrets(self, variables: Mapping[str, str]) -> None:
        """Removes the secrets among these values from everything written from now on."""
        self.redactor.add_secrets(secrets_among(variables))

    async def require(self) -> None:
        """Raises an AuditError before a new action if the log is known not to be writable."""
        if self.writer.failed:
            self.writer.add(b"")
            await self.writer.flush(required=True)

    def record(self, event: str, **fields: object) -> None:
        """Adds a line without the fields that are None. Never raises: see `require` and `LogWriter.flush`."""
        line = {"time": utc_now(), "event": event, **fields}
        omitted = _FULL_ONLY if event == "tool_call" and not self._full else ()
        for name in fields:
            if line[name] is None or name in omitted:
                del line[name]
        # ASCII, because terminals interpret many other characters.
        self.writer.add(json.dumps(line, separators=(",", ":"), default=str).encode() + b"\n")

    def code(self, code: str) -> dict[str, Any]:
        """Returns the fields that describe code."""
        return {
            "code": self.redactor.text(code, MAX_CODE) if self._full else None,
            "code_hash": self.digest(code),
            "code_chars": len(code),
        }

    def digest(self, value: Any) -> str | None:
        """Returns the hash of a JSON value as in the log; None if the value is nested too deeply.

        It is the HMAC-SHA256 of the canonical JSON: keys sorted, no spaces, non-ASCII characters escaped. It is keyed
        because trying all short values would reveal a short secret behind a plain hash. The key belongs to the user,
        who can check whether a line is about a given value; sandboxed code can't read it.
        """
        mac = hmac.new(self._key, digestmod=hashlib.sha256)
        try:
            for piece in _ENCODER.iterencode(value):  # in pieces, so that other threads can run
                mac.update(piece.encode())
        except RecursionError:
            return None
        return f"hmac-sha256:{mac.hexdigest()}"

    @cached_property
    def _key(self) -> bytes:
        return load_or_create_key(state_dir() / "audit.key")

    def add_placeholder_secrets(self, value: Mapping[str, Any]) -> None:
        """Removes the secrets behind placeholders in server parameters from everything written from now on."""
        if value == self._without_variables:  # servers are few, and calls many
            return
        if names := variables(value):
            self.add_secrets({name: os.environ[name] for name in names if name in os.environ})
        else:
            self._without_variables = value
