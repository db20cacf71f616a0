"""All from which a package is generated, as a hash: where it is the same, there is nothing to generate."""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pydantic

import ipybox
from ipybox.mcp_apigen.manifest import digest
from ipybox.mcp_apigen.module import ToolSpec
from ipybox.mcp_apigen.package import tool_digest


def origin_of(server_name: str, server_params: dict[str, Any], seal: str, tools: list[ToolSpec]) -> str | None:
    """The hash of what a server says, of how it is launched, and of the generator; none where a tool has none."""
    digests = [tool_digest(tool) for tool in tools]
    if None in digests:
        return None
    return digest(json.dumps([_generator(), server_name, server_params, seal, digests]).encode())


@cache
def _generator() -> str:
    # The version would not do: it is the same for many commits, all of which can be installed.
    package = Path(ipybox.__file__).parent
    sources = sorted(path for part in ("mcp_apigen", "tool_exec") for path in (package / part).glob("*.py"))
    texts = [path.read_bytes() for path in sources]
    return digest(b"\0".join([sys.version.encode(), pydantic.VERSION.encode(), *texts]))
