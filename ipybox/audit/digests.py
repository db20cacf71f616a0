"""Hashes that stand in the audit log for code and arguments.

They are keyed, as a plain hash of a short secret tells it to whoever tries all short secrets. The key is the user's own
and out of reach of code in the sandbox, so that the same user can tell whether a line is about a given value.
"""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from ipybox.keys import lasting_key
from ipybox.state import state_dir

_PREFIX = "hmac-sha256:"

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def key_path() -> Path:
    """Returns the path of the key: `ipybox/audit.key` in the user's state directory (XDG), mode 0600."""
    return state_dir() / "audit.key"


def digest(value: Any, key: bytes | None = None) -> str:
    """Returns the hash of a value that JSON can express, as the audit log has it, by default with the user's key.

    It is HMAC-SHA256 of the canonical JSON: keys sorted, no spaces, all but ASCII escaped.
    """
    mac = hmac.new(key or lasting_key(key_path()), digestmod=hashlib.sha256)
    for piece in _ENCODER.iterencode(value):  # so that other threads get their turn
        mac.update(piece.encode())
    return f"{_PREFIX}{mac.hexdigest()}"
