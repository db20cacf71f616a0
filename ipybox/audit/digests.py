"""Hashes of code and arguments in the audit log.

They are keyed: trying all short values would reveal a short secret behind a plain hash. The key belongs to the user,
who can check whether a line is about a given value; sandboxed code can't read it.
"""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from ipybox.support.private_file import load_or_create_key
from ipybox.support.state import state_dir

_PREFIX = "hmac-sha256:"

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def key_path() -> Path:
    """Returns the path of the key: `ipybox/audit.key` in the user's state directory (XDG), mode 0600."""
    return state_dir() / "audit.key"


def digest(value: Any, key: bytes | None = None) -> str:
    """Returns the hash of a JSON value as in the audit log, by default with the user's key.

    It is the HMAC-SHA256 of the canonical JSON: keys sorted, no spaces, non-ASCII characters escaped.
    """
    mac = hmac.new(key or load_or_create_key(key_path()), digestmod=hashlib.sha256)
    for piece in _ENCODER.iterencode(value):  # in pieces, so that other threads can run
        mac.update(piece.encode())
    return f"{_PREFIX}{mac.hexdigest()}"
