"""Generates the package for an MCP server's tools on disk, without a connection; `generate_mcp_sources` calls it."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

from ipybox.mcp_apigen.package.existing import ExistingPackage, read_package
from ipybox.mcp_apigen.package.files import render_package
from ipybox.mcp_apigen.package.hashes import inputs_hash
from ipybox.mcp_apigen.package.manifest import MANIFEST
from ipybox.mcp_apigen.package.merge import merge
from ipybox.mcp_apigen.package.swap import check_generated, clean_up, swap_in
from ipybox.mcp_apigen.package.tool_modules import ToolModules
from ipybox.support.safe_directory import Directory, open_directory
from ipybox.support.untrusted_paths import real_path
from ipybox.workspace.registrations import PinnedTool, Registration, ToolSpec, locked_registration, record_file
from ipybox.workspace.seal import seal


def generate_package(
    server_name: str,
    server_params: dict[str, Any],
    tools: list[ToolSpec],
    place: Path,
    untrusted_root: Path | None = None,
    launch: str = "",
) -> ToolModules:
    """Generates the package for these tools at `place`, unless an unchanged one is there.

    `launch` describes the server in the package's `Registration`.
    """
    sealed = seal(server_name, server_params, place.parent)
    origin = inputs_hash(server_name, server_params, sealed, tools)
    with _held(place, untrusted_root) as (parent, record):
        if origin and record.origin == origin:
            previous = read_package(parent, place.name, {})
            manifest = previous.intact
            if manifest and not _distrust_reason(previous, record):
                return ToolModules(record, manifest, manifest)
        files = render_package(server_name, server_params, tools, sealed, record.modules)
        return _write(parent, record, place, files, origin or "", sealed, tools, launch)


def check_place(place: Path, *, untrusted_root: Path | None = None) -> None:
    """Raises a FileExistsError if anything but a generated package is at `place`."""
    with (
        suppress(FileNotFoundError),
        open_directory(place.parent, untrusted_root=untrusted_root, create=False) as parent,
    ):
        check_generated(parent, place)


def write_package(place: Path, files: dict[str, str], *, untrusted_root: Path | None = None) -> ToolModules:
    """Writes the files from `render_package` as a package to `place`, as `generate_package` does."""
    with _held(place, untrusted_root) as (parent, record):
        return _write(parent, record, place, files)


def _write(
    parent: Directory,
    record: Registration,
    place: Path,
    files: dict[str, str],
    origin: str = "",
    sealed: str = "",
    tools: Sequence[ToolSpec] = (),
    launch: str = "",
) -> ToolModules:
    """Writes a package; `origin` is the hash of all inputs of its files, `sealed` the only valid seal from now on.

    The record pins the `tools`.
    """
    clean_up(parent, place)
    previous = read_package(parent, place.name, files)
    renewal = merge(files, previous)
    unknown = _distrust_reason(previous, record)
    modules = ToolModules(
        record, renewal.manifest, None if unknown else previous.manifest, new=not previous.names, unknown=unknown
    )
    if not renewal.files.items() <= previous.contents.items():
        modules.kept = swap_in(parent, place, renewal, previous)
    hints = dict(map(attrgetter("name", "hints"), tools))
    pinned: dict[str, PinnedTool] = {}
    for module in renewal.manifest.modules.values():
        if module.tool in hints:
            pinned[module.tool] = PinnedTool(module.meaning or "", hints[module.tool])
    record.write(renewal.files[MANIFEST], origin, sealed, modules.wire_names, pinned, launch)
    return modules


@contextmanager
def _held(place: Path, untrusted_root: Path | None) -> Generator[tuple[Directory, Registration]]:
    """Opens the parent directory of a package, and locks its registration against concurrent generation."""
    with open_directory(place.parent, untrusted_root=untrusted_root) as parent:
        # Its real path, but without following links that sandboxed code could create.
        if untrusted_root is not None and parent.path.is_relative_to(untrusted_root):
            real = Path(os.path.realpath(untrusted_root)) / parent.path.relative_to(untrusted_root)
        else:
            real = Path(real_path(parent.path))
        with locked_registration(record_file(real / place.name)) as record:
            record.place = real / place.name
            check_generated(parent, place)
            yield parent, record


def _distrust_reason(previous: ExistingPackage, record: Registration) -> str:
    """Returns why the existing manifest can't be trusted; empty if it can, or if there was no package."""
    if not previous.names:
        return ""
    if previous.manifest is None:
        return f"{MANIFEST} is missing or damaged"
    if not record.matches(previous.contents[MANIFEST]):
        return f"{MANIFEST} was edited, or comes from another machine"
    return ""
