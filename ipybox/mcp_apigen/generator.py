"""From an MCP server to a package on disk.

A package is written beside its place and then renamed into it: nobody ever sees half a package, and whatever goes
wrong before leaves the old one as it is. Nothing is replaced that was not generated.
"""

import asyncio
import errno
import importlib
import logging
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ipybox.beneath import Directory, open_directory
from ipybox.errors import MCPServerError, MissingVariableError
from ipybox.mcp_apigen.naming import check_package_name, module_names
from ipybox.mcp_apigen.package import MANIFEST, ToolSpec, render_package
from ipybox.mcp_params import parse_params
from ipybox.sandbox.servers import start_beside

logger = logging.getLogger(__name__)

#: Seconds after which a directory that another generation left behind can't be in use any more.
STALE_AFTER = 600
# Another generation of the same package costs one attempt; more than this is no accident.
_ATTEMPTS = 100


async def generate_mcp_sources(
    server_name: str,
    server_params: dict[str, Any],
    root_dir: Path,
    *,
    connect_timeout: float = 30,
    beneath: Path | None = None,
) -> list[str]:
    """Generates a typed Python package for the tools of an MCP server, in `root_dir/server_name/`.

    Each tool becomes a module with its `Params`, its `Result` if it has an output schema, `run(params)` and
    `await run_async(params)`. A package that was generated before is replaced as a whole.

    Args:
        server_name: Name of the package, a Python identifier.
        server_params: How to launch or reach the server; `${VAR}` placeholders are written unresolved.
        root_dir: The directory for packages; it is created if needed.
        connect_timeout: Seconds until the server must have answered.
        beneath: The workspace of a sandbox, whose code can make links there: if `root_dir` lies there, none of them
            is followed. By default all are.

    Returns:
        The names of the modules, in the order of the server's tools.

    Raises:
        ValueError: The name is not a valid package name, or the parameters have a wrong shape.
        FileExistsError: Something that was not generated is in the package's place.
        NotADirectoryError: `root_dir` is no directory, or a link that is not followed.
        MissingVariableError: A placeholder has no value.
        MCPServerError: The server can't be started, reached or understood.
    """
    check_package_name(server_name)
    parse_params(server_params)
    place = Path(root_dir) / server_name
    await asyncio.to_thread(check_place, place, beneath=beneath)
    started = server_params if beneath is None else start_beside(server_params)
    tools = await _list_tools(server_name, started, connect_timeout)
    await asyncio.to_thread(_generate, server_name, server_params, tools, place, beneath)
    return module_names([tool.name for tool in tools])


async def _list_tools(server_name: str, server_params: dict[str, Any], connect_timeout: float) -> list[ToolSpec]:
    # The SDK takes a second to import; that must not block the caller's loop.
    client = await asyncio.to_thread(importlib.import_module, "ipybox.mcp_client")
    try:
        async with client.MCPClient(server_params, connect_timeout) as session:
            tools = await session.list_tools()
    except (MCPServerError, MissingVariableError) as exc:
        raise type(exc)(f"MCP server {server_name!r}: {exc}") from exc
    return [ToolSpec(tool.name, tool.description, tool.input_schema, tool.output_schema) for tool in tools]


def _generate(
    server_name: str, server_params: dict[str, Any], tools: list[ToolSpec], place: Path, beneath: Path | None
) -> None:
    from ipybox.tool_exec.seal import seal

    files = render_package(server_name, server_params, tools, seal(server_name, server_params, place.parent))
    write_package(place, files, beneath=beneath)


def check_place(place: Path, *, beneath: Path | None = None) -> None:
    """Makes sure that nothing but a generated package is at `place`.

    Raises:
        FileExistsError: Something else is.
    """
    with suppress(FileNotFoundError), open_directory(place.parent, beneath=beneath, create=False) as parent:
        _check(parent, place)


def write_package(place: Path, files: dict[str, str], *, beneath: Path | None = None) -> None:
    """Puts a package of these files at `place`, instead of the generated one that may be there.

    Raises:
        FileExistsError: Something that was not generated is there.
    """
    with open_directory(place.parent, beneath=beneath) as parent:
        # Hidden, and no identifier: it can't be imported.
        prefix = f".{place.name}"
        _remove_stale(parent, prefix)
        with parent.scratch(prefix) as scratch:
            with scratch.open("new", create=True) as new:
                for name, text in files.items():
                    new.write_new(name, text.encode())
            _swap(scratch, parent, place)


def _check(parent: Directory, place: Path) -> None:
    for _ in range(_ATTEMPTS):
        try:
            before = parent.stat(place.name)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(before.st_mode) and _has_manifest(parent, place.name):
            return
        with suppress(FileNotFoundError):
            if parent.stat(place.name).st_ino == before.st_ino:
                break  # else another generation has just replaced it
    raise FileExistsError(f"{place} was not generated by ipybox and is not replaced; move it or choose another name")


def _has_manifest(parent: Directory, name: str) -> bool:
    try:
        with parent.open(name) as package:
            return stat.S_ISREG(package.stat(MANIFEST).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _swap(scratch: Directory, parent: Directory, place: Path) -> None:
    for attempt in range(_ATTEMPTS):
        _check(parent, place)
        old = f"old{attempt}"
        with suppress(FileNotFoundError):  # there is none, or another generation is between its two renames
            parent.rename(place.name, scratch, old)
        try:
            scratch.rename("new", parent, place.name)
        except OSError as exc:
            if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                with suppress(FileNotFoundError):
                    scratch.rename(old, parent, place.name)
                raise
            # Another generation was faster, and may have been replaced since; ours is newer.
        else:
            return
    raise FileExistsError(f"{place} could not be replaced: others keep replacing it")


def _remove_stale(parent: Directory, prefix: str) -> None:
    for name in parent.names():
        if not (name.startswith(f"{prefix}.") and name.endswith(".tmp")):
            continue
        try:
            state = parent.stat(name)
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(state.st_mode) and time.time() - state.st_mtime > STALE_AFTER:
            parent.remove(name)
