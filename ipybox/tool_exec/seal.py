"""Seals on the launch parameters of MCP servers.

A generated package carries its server's parameters, and kernel code can change them. The seal is an HMAC of the
server's name and parameters under a key that stays on the host, so the tool server can tell the parameters that
were registered from those that were not.
"""

import hashlib
import hmac
import json
import os
import secrets
from functools import cache
from pathlib import Path
from typing import Any

KEY_BYTES = 32


def key_path() -> Path:
    """Returns the path of the key: `ipybox/seal.key` in the user's state directory (XDG), mode 0600."""
    state_home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state_home) / "ipybox" / "seal.key"


def seal(server_name: str, server_params: dict[str, Any]) -> str:
    """Returns the seal of a server's name and parameters; placeholders are sealed unresolved."""
    canonical = json.dumps([server_name, server_params], sort_keys=True, separators=(",", ":"))
    return hmac.new(_key(key_path()), canonical.encode(), hashlib.sha256).hexdigest()


def is_sealed(server_name: str, server_params: dict[str, Any], candidate: str | None) -> bool:
    """Tells whether `candidate` is the seal of these parameters under this name."""
    return candidate is not None and hmac.compare_digest(
        seal(server_name, server_params).encode(), candidate.encode(errors="replace")
    )


@cache
def _key(path: Path) -> bytes:
    """Returns the key in the file, which is made with a new one if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
    try:
        os.link(new, path)  # atomic, and keeps the key of whoever was first
    except FileExistsError:
        pass
    finally:
        new.unlink()
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise ValueError(f"{path} does not hold a key of {KEY_BYTES} bytes: remove it, then register servers again")
    return key
