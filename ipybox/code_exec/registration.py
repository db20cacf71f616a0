"""Registers an MCP server: connects to it, records the registration, and generates the package of its tools.

Applications and the MCP server call `generate_mcp_sources`.
"""

import asyncio
import json
import logging
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipybox.audit.records import recorded
from ipybox.audit.redaction import is_secret, may_be_command
from ipybox.code_exec.function_package import is_function_package
from ipybox.mcp_apigen.generator import ToolModules, check_place, generate_package
from ipybox.mcp_apigen.render.naming import package_name
from ipybox.mcp_client.oauth import SignIn, open_in_browser
from ipybox.mcp_client.params import RemoteParams, StdioParams, parse_params, public_url
from ipybox.mcp_client.secrets import literal_secrets
from ipybox.mcp_client.stdio_servers import named_paths, risk
from ipybox.sandbox.settings import PROFILES
from ipybox.support.errors import MCPServerError, MissingVariableError
from ipybox.support.lazy_exports import import_installed
from ipybox.support.names import OWN_NAME
from ipybox.support.placeholders import fill_in
from ipybox.support.placeholders import variables as placeholders
from ipybox.support.state import had_confined_code, state_dir
from ipybox.support.untrusted_paths import real_path
from ipybox.tool_exec.dispatch import APP_SERVER
from ipybox.workspace.env_file import env_file_placeholders, read_env_file
from ipybox.workspace.seal import ImportedSecrets
from ipybox.workspace.writable import WritablePlaces

if TYPE_CHECKING:
    from ipybox.audit.audit import AuditLog

logger = logging.getLogger(__name__)

#: Maximum remarks on tools, and maximum characters of each.
_MAX_REMARKS = 20
_MAX_REMARK = 500

#: The parts of a tool's definition that a client without generated packages gives the model.
_DEFINITION = attrgetter("name", "description", "input_schema")


async def generate_mcp_sources(
    server_name: str,
    server_params: dict[str, Any],
    root_dir: Path,
    *,
    connect_timeout: float = 120,
    places: WritablePlaces | None = None,
    variables: Mapping[str, str] | None = None,
    sign_in: SignIn | None = open_in_browser,
    audit: "AuditLog | None" = None,
    on_progress: Callable[[str], None] | None = None,
) -> ToolModules:
    """Generates a typed Python package for the tools of an MCP server, in `root_dir/server_name/`.

    Each tool becomes a module with its `Params`, its `Result` if it has an output schema, `run(params)` and
    `await run_async(params)`. A package that was generated before is replaced as a whole, or kept if it would be the
    same. Additions to its modules are preserved, as are files that were not generated.

    Args:
        server_name: Name of the server; hyphens, dots and spaces become underscores in the name of the package.
        server_params: How to start or reach the server; `${VAR}` placeholders are written unresolved.
        root_dir: The directory for packages; it is created if needed.
        connect_timeout: Seconds in which the server must answer; this may include its download.
        places: The places that code can write: no link is followed in their workspace, and a stdio server loads no
            program, module or configuration from them. By default the working directory if it contains `root_dir`,
            otherwise the parent of `root_dir`; programs and scripts there that the parameters name may run until
            confined code has run in their directory.
        variables: Values of placeholders that the environment lacks; by default from the workspace's `.env` file.
        sign_in: Shows a person where to sign in, by default in the user's browser; None to ask nobody.
        audit: The log in which the registration is recorded.
        on_progress: Called with each line that a stdio server and its launcher write to stderr before the server
            answers, such as `downloading …`.

    Returns:
        The names of the modules, in the order of the server's tools, and what `ToolModules.warnings` returns, which is
        also logged: tool changes, secrets in plain text, malformed tools.

    Raises:
        ValueError: If the name is not a valid package name, or the parameters are malformed.
        FileExistsError: If something that was not generated is in the package's place, or it contains too many files.
        NotADirectoryError: If `root_dir` is not a directory, or a link that is not followed.
        MissingVariableError: If a placeholder has no value.
        MCPServerError: If the server can't be started, reached or understood.
        AuditError: If the registration can't be recorded.
    """
    async with recorded(audit, "registration", server_name=server_name, server_params=server_params) as record:
        name = package_name(server_name)
        place = Path(root_dir) / name
        _check_name(server_name, place)
        server = parse_params(server_params)
        secrets = [*literal_secrets(server)]
        places = places or _default_places(place.parent, server)
        imported = ImportedSecrets(places.workspace)
        if audit is not None and secrets:
            audit.redactor.hide(secret.value for secret in secrets)
        await asyncio.to_thread(check_place, place, untrusted_root=places.workspace)
        options = {
            "sign_in": sign_in,
            "places": places,
            "variables": read_env_file(places.workspace) if variables is None else variables,
            "secrets": imported.of(name, server_params),
            "on_progress": on_progress,
        }
        started = server
        if placeholders(server_params):  # a repository could have written their values
            started = parse_params(fill_in(server_params, env_file_placeholders(places.workspace)))
        launch = _launch(started)
        modules = await _generate(place, server_params, connect_timeout, options, launch)
        if imported.directory.exists():
            imported.keep_only(name, server_params)
        modules.server_name = name
        remarks, modules.advice = modules.advice, []
        if name != server_name:
            modules.advice.append(f"{server_name!r} is not a Python name: import and call the server as {name!r}")
        for secret in secrets:
            modules.advice.append(secret.advice(name))
        if isinstance(server, StdioParams) and (warning := risk(server, places)) is not None:
            modules.advice.append(warning)
        modules.advice += remarks
        record |= {"tools": list(modules.wire_names.values()), "new": modules.new}
        for change in ("added", "removed", "changed"):
            if names := getattr(modules, change):
                record[change] = list(names)
    for line in modules.warnings():
        logger.warning("MCP server %s: %s", name, line)
    return modules


def _check_name(server_name: str, place: Path) -> None:
    if place.name == OWN_NAME:
        raise ValueError(
            f"server name {server_name!r} is reserved: approval policies use it for ipybox itself. Choose another name"
        )
    if place.name == APP_SERVER and is_function_package(Path(real_path(place.parent)) / APP_SERVER):
        raise ValueError(
            f"server name {server_name!r} is taken by the application's functions in {place.parent}: choose "
            f"another name, or delete {place} if the application no longer provides functions"
        )


async def _generate(
    place: Path, server_params: dict[str, Any], connect_timeout: float, options: dict[str, Any], launch: str
) -> ToolModules:
    """Generates the package from a server's tools while the server stops."""
    # The SDK takes a second to import; that must not block the caller's loop.
    client = await asyncio.to_thread(import_installed, "ipybox.mcp_client.client")
    try:
        async with client.MCPClient(server_params, connect_timeout, **options) as session:
            tools = await session.list_tools()
            root = options["places"].workspace
            generating = asyncio.to_thread(generate_package, place.name, server_params, tools, place, root, launch)
            closing: Awaitable[None] = session.close()
            modules, _ = await asyncio.gather(generating, closing)
            definitions = [*map(_DEFINITION, tools)]
            modules.definition_chars = len(json.dumps(definitions, ensure_ascii=False, separators=(",", ":")))
    except (MCPServerError, MissingVariableError) as exc:
        raise type(exc)(f"MCP server {place.name!r}: {exc}") from exc
    if tools.remarks:
        modules.advice += _bounded(tools.remarks)
    return modules


def _launch(server: StdioParams | RemoteParams) -> str:
    """Returns how a server is started or reached, without secrets in its environment and plain-text secrets.

    What could be a command is not taken for a secret, and no host looks like another one.
    """
    if isinstance(server, RemoteParams):
        text = public_url(server.url).encode("ascii", "backslashreplace").decode()
        text += "?…" if "?" in server.url else ""
    else:
        directory = f"cd {shlex.quote(server.cwd)}; " if server.cwd else ""
        shown = {name: "…" if is_secret(name, value) else shlex.quote(value) for name, value in server.env.items()}
        variables = "".join(f"{shlex.quote(name)}={value} " for name, value in shown.items())
        text = f"{directory}{variables}{shlex.join([server.command, *server.args])}"
    for secret in literal_secrets(server):
        if not may_be_command(secret.value):
            text = text.replace(secret.value, "…")
    return text


def _bounded(remarks: list[str]) -> list[str]:
    more = [f"and {len(remarks) - _MAX_REMARKS} more remarks"] if len(remarks) > _MAX_REMARKS else []
    kept = (each if len(each) <= _MAX_REMARK else f"{each[:_MAX_REMARK]}…" for each in remarks[:_MAX_REMARKS])
    return [*kept, *more]


def _default_places(root_dir: Path, server: StdioParams | RemoteParams) -> WritablePlaces:
    """Returns the places that code can write if the application passes none: it has not confined any code yet.

    A project's scripts count as the author's own until confined code has run in their directory.
    """
    root = Path(os.path.abspath(root_dir))
    existing = next(parent for parent in root.parents if parent.is_dir())
    # Links to the workspace are followed; links in it are not.
    workspace = Path.cwd() if root.is_relative_to(Path.cwd()) else existing
    trusting = WritablePlaces(workspace)
    if (
        isinstance(server, StdioParams)
        and not placeholders(
            [server.command, *server.args, server.env.get("PATH")]
        )  # what placeholders name is unknown here
        and not trusting.covers(state_dir())  # code could remove the records there
        and not any(map(had_confined_code, named_paths(server)))
    ):
        return trusting
    return WritablePlaces(workspace, PROFILES["default"])
