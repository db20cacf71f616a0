"""A hash of all inputs of a package: if it is unchanged, nothing needs to be generated."""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pydantic

from ipybox.mcp_apigen.package.files import tool_digest
from ipybox.mcp_apigen.package.manifest import sha256_hex
from ipybox.mcp_apigen.render.module import ToolSpec


def inputs_hash(server_name: str, server_params: dict[str, Any], seal: str, tools: list[ToolSpec]) -> str | None:
    """Returns the hash of a server's tools, its parameters and the generator; None if a tool has no hash."""
    digests = [tool_digest(tool) for tool in tools]
    if None in digests:
        return None
    return sha256_hex(json.dumps([_generator(), server_name, server_params, seal, digests]).encode())


@cache
def _generator() -> str:
    # The version is not enough: it is the same for many commits, all of which can be installed.
    package = Path(__file__).parents[2]
    sources = sorted(
        path for part in ("mcp_apigen", "guest/tools", "tool_exec") for path in (package / part).rglob("*.py")
    )
    texts = [path.read_bytes() for path in sources]
    return sha256_hex(b"\0".join([sys.version.encode(), pydantic.VERSION.encode(), *texts]))
