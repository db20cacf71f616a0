"""Rebuilds what ipybox generated in `docs/generated/`: its package for the stand-in of GitHub's MCP server.

    python docs/generate.py [--check]

A tool module to which an output parser was appended keeps its generated code in `<tool>_orig.py` next to it. Both are
rebuilt; the appended code stays. Parsers and saved code actions are written by hand, and are left alone.

With --check nothing is written: it fails if a file differs from what would be.
"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from ipybox.mcp_apigen.package.files import MANIFEST, ToolSpec, render_package
from ipybox.mcp_client import MCPClient

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "docs" / "generated" / "mcptools" / "github"
STAND_IN: dict[str, Any] = {"command": sys.executable, "args": [str(ROOT / "tests" / "github_server.py")]}

#: How a user registers the real server.
PARAMS: dict[str, Any] = {
    "url": "https://api.githubcopilot.com/mcp/",
    "headers": {"Authorization": "Bearer ${GITHUB_API_KEY}"},
}
#: A real seal is valid for one directory of one user, so it is of no use here.
NO_SEAL = ""
CONNECT_TIMEOUT = 30
ORIGINAL = "_orig.py"


class MixedUpError(Exception):
    """A module does not begin with its original, so its appended code is unknown."""


async def generate() -> dict[str, str]:
    """The files of the package as ipybox generates them now."""
    async with MCPClient(STAND_IN, CONNECT_TIMEOUT) as session:
        tools = await session.list_tools()
    specs = [ToolSpec(tool.name, tool.description, tool.input_schema, tool.output_schema) for tool in tools]
    return render_package("github", PARAMS, specs, NO_SEAL)


def extend(new: dict[str, str], old: dict[str, str]) -> dict[str, str]:
    """New files, with what is appended to modules in the old ones, and with the originals of such modules.

    Raises:
        MixedUpError: An old module does not begin with its original, or the server has lost its tool.
    """
    files = dict(new)
    for original in old:
        name = original.removesuffix(ORIGINAL) + ".py"
        if original.endswith(ORIGINAL) and name not in new:
            raise MixedUpError(f"the server has no tool for {name}, which is extended: remove it and {original}")
    for name, text in new.items():
        if name == MANIFEST:
            continue
        original = name.removesuffix(".py") + ORIGINAL
        generated = old.get(original, text)
        extended = old.get(name, generated)
        appended = extended.removeprefix(generated)
        if original in old and not extended.startswith(generated):
            raise MixedUpError(f"{name} does not begin with the text of {original}: append the parser to that text")
        if extended.startswith(generated) and appended:
            files |= {original: text, name: text + appended}
    return files


def read(package: Path) -> dict[str, str]:
    """The text of each file of a package, by the file's name."""
    if not package.exists():
        return {}
    return {path.name: path.read_text(encoding="utf-8") for path in package.iterdir() if path.is_file()}


def write(package: Path, files: dict[str, str], old: dict[str, str]) -> None:
    """Makes the package hold these files and no others."""
    package.mkdir(parents=True, exist_ok=True)
    for name in old.keys() - files.keys():
        (package / name).unlink()
    for name, text in files.items():
        (package / name).write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Rebuilds the generated package in docs/generated.")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if something would change")
    parser.add_argument("--package", type=Path, default=PACKAGE, help="the package (default: that of docs/generated)")
    options = parser.parse_args()
    package: Path = options.package
    old = read(package)
    try:
        files = extend(asyncio.run(generate()), old)
    except MixedUpError as exc:
        print(f"{package}: {exc}", file=sys.stderr)
        return 1
    changed = sorted(name for name in old.keys() | files.keys() if old.get(name) != files.get(name))
    if not options.check:
        write(package, files, old)
    elif changed:
        print(f"{package}: not up to date: {', '.join(changed)}. Run `make docs`, then commit.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
