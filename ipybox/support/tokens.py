"""Tokens of the components that listen on a port, stored the same way as Jupyter's own tokens.

Only the same user can read their files, which clients find by kind and port.
"""

import json
import secrets
from pathlib import Path
from typing import Literal

from jupyter_core.paths import jupyter_runtime_dir

from ipybox.support.private_file import replace_private
from ipybox.support.state import scratch_root, state_dir, unwritable

Kind = Literal["kernel-gateway", "mcp-server", "tool-server"]


def new_token() -> str:
    """Returns a new random token."""
    return secrets.token_hex(32)


def token_file(kind: Kind, port: int) -> Path:
    """Returns the path of the file with the token of the component at `port`."""
    return Path(jupyter_runtime_dir()) / f"ipybox-{kind}-{port}.json"


def publish_token(kind: Kind, port: int, token: str) -> Path:
    """Writes the token of the component at `port` where clients of the same user find it; returns the path."""
    path = token_file(kind, port)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_private(path, json.dumps({"token": token}))
    except OSError as exc:
        raise OSError(unwritable(path.parent, exc.strerror)) from exc
    return path


def find_token(kind: Kind, port: int) -> str | None:
    """Returns the token of the component at `port`, or None if it has published no token."""
    try:
        return str(json.loads(token_file(kind, port).read_text())["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def private_directories() -> list[Path]:
    """Returns the directories with ipybox's keys, the tokens of ports, and the host's scratch directories."""
    return [state_dir(), Path(jupyter_runtime_dir()), scratch_root()]
