"""Writes `docs/mcp-tools.md`, the reference of the MCP server's tools, from the definitions that clients get.

    python docs/mcp_tools_reference.py [--check]

With --check nothing is written: it fails if the page would change. `make docs` writes it, `make lint` checks it.
"""

import asyncio
import json
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mcp_types import Tool

from ipybox.code_exec import ExecutorConfig
from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer
from ipybox.mcp_server.services import WorkspaceServices
from ipybox.mcp_server.tools import ToolHandlers

PAGE = Path(__file__).with_name("mcp-tools.md")

HEAD = """# MCP tools

<!-- Written by docs/mcp_tools_reference.py from ipybox/mcp_server: edit the tools, and run `make docs`. -->

The tools of ipybox's MCP server, as clients get them. [MCP server](mcp-server.md) describes their results.
`upload_file` and `download_file` exist only with `--allowed-dir`.
"""


def listed() -> list[Tool]:
    """Returns the tools of a server that has all of them. It is not started."""
    with TemporaryDirectory() as workspace:
        config = ExecutorConfig(working_dir=Path(workspace))
        services = WorkspaceServices(config, max_sessions=1, approve="auto", audit="off")
        handlers = ToolHandlers(services, files=FileTransfer(config.workspace, [workspace]))
        return asyncio.run(handlers.server.list_tools())


def page(tools: list[Tool]) -> str:
    """Returns the text of the page."""
    return HEAD + "".join(map(_section, tools))


def _section(tool: Tool) -> str:
    schema = tool.input_schema
    required: list[str] = schema.get("required", [])
    properties: dict[str, dict[str, Any]] = schema.get("properties", {})
    rows = "".join(_row(name, value, required=name in required) for name, value in properties.items())
    table = f"\n| argument | type | default | meaning |\n| --- | --- | --- | --- |\n{rows}" if rows else ""
    return f"\n## {tool.name}\n\n{_in_code_style(str(tool.description))}\n{table}"


def _row(name: str, schema: dict[str, Any], *, required: bool) -> str:
    default = "required" if required else f"`{json.dumps(schema.get('default'))}`"
    types = schema.get("enum") or [schema.get("type") or " or ".join(each["type"] for each in schema["anyOf"])]
    meaning = str(schema.get("description", "")).replace("|", "\\|")
    return f"| `{name}` | {', '.join(map(str, types))} | {default} | {_in_code_style(meaning)} |\n"


def _in_code_style(text: str) -> str:
    """Returns the text with `${VAR}`, JSON and `<name>` in code style, as Markdown would change them."""
    return re.sub(r"\$?\{[^}]*\}|\S*<\w+>[\w/]*", r"`\g<0>`", text)


def main(*, check: bool) -> int:
    """Writes the page, or only compares it, and returns the exit status."""
    text = page(listed())
    if check and PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE.name} is not what the tools are: run `make docs`", file=sys.stderr)
        return 1
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
