"""From an MCP server to a package on disk."""

import asyncio
import logging
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipybox.audit.action import recorded
from ipybox.beneath import Directory, open_directory
from ipybox.errors import MCPServerError, MissingVariableError
from ipybox.mcp_apigen.manifest import MANIFEST, Manifest
from ipybox.mcp_apigen.module import ToolSpec
from ipybox.mcp_apigen.naming import check_package_name
from ipybox.mcp_apigen.origin import origin_of
from ipybox.mcp_apigen.package import render_package
from ipybox.mcp_apigen.previous import Previous, read_package
from ipybox.mcp_apigen.renewal import renew
from ipybox.mcp_apigen.replacement import Moved, check_generated, clean_up, replace
from ipybox.mcp_apigen.tool_modules import Drift, ToolModules
from ipybox.mcp_params import StdioServer, parse_params
from ipybox.mcp_secrets import literal_secrets
from ipybox.oauth.browser import open_in_browser
from ipybox.sandbox.settings import PROFILES
from ipybox.tool_exec.seal import mac_of, seal
from ipybox.workspace.env_file import read_env_file
from ipybox.workspace.imports import import_installed
from ipybox.workspace.registrations import Registration, locked_registration
from ipybox.workspace.stdio_servers import risk
from ipybox.workspace.writable import WritablePlaces

if TYPE_CHECKING:
    from ipybox.audit.audit import Audit
    from ipybox.oauth.authenticator import SignIn

logger = logging.getLogger(__name__)


async def generate_mcp_sources(
    server_name: str,
    server_params: dict[str, Any],
    root_dir: Path,
    *,
    connect_timeout: float = 30,
    places: WritablePlaces | None = None,
    variables: Mapping[str, str] | None = None,
    sign_in: "SignIn | None" = open_in_browser,
    audit: "Audit | None" = None,
) -> ToolModules:
    """Generates a typed Python package for the tools of an MCP server, in `root_dir/server_name/`.

    Each tool becomes a module with its `Params`, its `Result` if it has an output schema, `run(params)` and
    `await run_async(params)`. A package that was generated before is replaced as a whole, or left alone if it would be
    the same. What was appended to its modules stays there, and so do files that were not generated.

    Args:
        server_name: Name of the package, a Python identifier.
        server_params: How to launch or reach the server; `${VAR}` placeholders are written unresolved.
        root_dir: The directory for packages; it is created if needed.
        connect_timeout: Seconds until the server must have answered.
        places: The places that code can write: no link is followed in their workspace, and a stdio server takes no
            program, module or configuration from them. By default the working directory if `root_dir` lies there, or
            else the parent of `root_dir`.
        variables: Values of placeholders that the environment does not have; by default those of the `.env` file of
            the workspace.
        sign_in: Shows a person where to sign in, if a remote server asks for that; by default in the user's browser.
            None if nobody is to be asked.
        audit: Where it is recorded.

    Returns:
        The names of the modules, in the order of the server's tools: a list that also tells what has changed since
        the package was generated before, and which secrets are written out in the parameters. The log has that, too,
        as warnings.

    Raises:
        ValueError: The name is not a valid package name, or the parameters have a wrong shape.
        FileExistsError: Something that was not generated is in the package's place, or too many files are in it.
        NotADirectoryError: `root_dir` is no directory, or a link that is not followed.
        MissingVariableError: A placeholder has no value.
        MCPServerError: The server can't be started, reached or understood.
        AuditError: It can't be recorded.
    """
    with recorded(audit, "registration", server_name=server_name, server_params=server_params) as record:
        check_package_name(server_name)
        server = parse_params(server_params)
        literals = literal_secrets(server_params)
        if audit is not None:
            audit.hide(secret.value for secret in literals)
        place = Path(root_dir) / server_name
        places = places or WritablePlaces(_workspace_of(place.parent), PROFILES["default"])
        await asyncio.to_thread(check_place, place, beneath=places.workspace)
        values = read_env_file(places.workspace) if variables is None else variables
        tools = await _list_tools(
            server_name, server_params, connect_timeout, sign_in=sign_in, places=places, variables=values
        )
        modules = await asyncio.to_thread(generate_package, server_name, server_params, tools, place, places.workspace)
        modules.advice = [secret.advice(server_name) for secret in literals]
        if isinstance(server, StdioServer) and (warning := risk(server, places)) is not None:
            modules.advice.append(warning)
        record |= {"tools": list(modules.wire_names.values()), "new": modules.new}
        changes = {"added": modules.added, "removed": modules.removed, "changed": modules.changed}
        record |= {name: list(names) for name, names in changes.items() if names}
    for line in modules.warnings():
        logger.warning("MCP server %s: %s", server_name, line)
    return modules


async def _list_tools(
    server_name: str, server_params: dict[str, Any], connect_timeout: float, **options: Any
) -> list[ToolSpec]:
    # The SDK takes a second to import; that must not block the caller's loop.
    client = await asyncio.to_thread(import_installed, "ipybox.mcp_client")
    try:
        async with client.MCPClient(server_params, connect_timeout, **options) as session:
            tools = await session.list_tools()
    except (MCPServerError, MissingVariableError) as exc:
        raise type(exc)(f"MCP server {server_name!r}: {exc}") from exc
    return [ToolSpec(tool.name, tool.description, tool.input_schema, tool.output_schema) for tool in tools]


def _workspace_of(root_dir: Path) -> Path:
    """Returns the directory to which links may lead and in which none is followed."""
    root = Path(os.path.abspath(root_dir))
    existing = next(parent for parent in root.parents if parent.is_dir())
    return Path.cwd() if root.is_relative_to(Path.cwd()) else existing


def generate_package(
    server_name: str, server_params: dict[str, Any], tools: list[ToolSpec], place: Path, beneath: Path | None = None
) -> ToolModules:
    """Generates the package for these tools at `place`; all of `generate_mcp_sources` but the connection."""
    sealed = seal(server_name, server_params, place.parent)
    origin = origin_of(server_name, server_params, sealed, tools)
    unchanged = _unchanged(place, origin, sealed, beneath)
    if unchanged is not None:
        return unchanged
    files = render_package(server_name, server_params, tools, sealed)
    return write_package(place, files, beneath=beneath, origin=origin, sealed=sealed)


def _unchanged(place: Path, origin: str | None, sealed: str, beneath: Path | None) -> ToolModules | None:
    """The modules of the package, if it is there as it was generated, and from the same."""
    with suppress(FileNotFoundError), _held(place, beneath, create=False) as (parent, record):
        previous = _read(parent, place.name, {})
        manifest = previous.intact
        if manifest and record.seal == mac_of(sealed) and record.has_origin(origin) and not _doubt(previous, record):
            return _outcome(previous, manifest)
    return None


def check_place(place: Path, *, beneath: Path | None = None) -> None:
    """Makes sure that nothing but a generated package is at `place`.

    Raises:
        FileExistsError: Something else is.
    """
    with suppress(FileNotFoundError), open_directory(place.parent, beneath=beneath, create=False) as parent:
        check_generated(parent, place)


def write_package(
    place: Path, files: dict[str, str], *, beneath: Path | None = None, origin: str | None = None, sealed: str = ""
) -> ToolModules:
    """Puts a package of these files at `place`, where another generated one may be; see `generate_mcp_sources`.

    Args:
        place: The directory of the package.
        files: What `render_package` returns.
        beneath: See `generate_mcp_sources`.
        origin: The hash of all from which the files were generated.
        sealed: The seal of the server's parameters, which is the only one that counts from now on.

    Raises:
        FileExistsError: Something that was not generated is there, or too many files.
    """
    with _held(place, beneath) as (parent, record):
        clean_up(parent, place)
        previous = _read(parent, place.name, files)
        renewal = renew(files, previous)
        unknown = _doubt(previous, record)
        moved: Moved = {}
        if any(previous.contents.get(name) != data for name, data in renewal.files.items()):
            moved = replace(parent, place, renewal, previous)
        record.write(renewal.files[MANIFEST], origin, mac_of(sealed))
    return _outcome(previous, renewal.manifest, unknown, moved)


@contextmanager
def _held(place: Path, beneath: Path | None, *, create: bool = True) -> Generator[tuple[Directory, Registration]]:
    """Opens the directory of a package's place, when nobody else generates the package."""
    with (
        open_directory(place.parent, beneath=beneath, create=create) as parent,
        locked_registration(_address(parent, place.name, beneath)) as record,
    ):
        check_generated(parent, place)
        yield parent, record


def _read(parent: Directory, name: str, files: dict[str, str]) -> Previous:
    try:
        with parent.open(name) as package:
            return read_package(package, files)
    except FileNotFoundError:
        return Previous()


def _doubt(previous: Previous, record: Registration) -> str:
    """Why the manifest that was found can't be believed; empty if it can, or if there was no package."""
    if not previous.names:
        return ""
    if previous.manifest is None:
        return f"{MANIFEST} is no record of them"
    if not record.is_of(previous.contents[MANIFEST]):
        return f"{MANIFEST} was altered, or not written here"
    return ""


def _outcome(previous: Previous, manifest: Manifest, unknown: str = "", moved: Moved | None = None) -> ToolModules:
    return ToolModules(
        {module: record.tool for module, record in manifest.modules.items()},
        new=not previous.names,
        unknown=unknown,
        drift=None if unknown or previous.manifest is None else Drift.between(previous.manifest, manifest),
        kept={name: target for name, target in (moved or {}).items() if name != target},
    )


def _address(parent: Directory, name: str, beneath: Path | None) -> Path:
    """Returns the path of a package without links, of which those that sandboxed code could make are not followed."""
    if beneath is not None and parent.path.is_relative_to(beneath):
        return Path(os.path.realpath(beneath)) / parent.path.relative_to(beneath) / name
    return Path(os.path.realpath(parent.path)) / name
