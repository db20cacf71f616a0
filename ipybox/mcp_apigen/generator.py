"""Generates the package for an MCP server's tools on disk, without a connection; `generate_mcp_sources` calls it."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

from ipybox.mcp_apigen.package.files import render_package
from ipybox.mcp_apigen.package.hashes import inputs_hash
from ipybox.mcp_apigen.package.manifest import MANIFEST, Manifest
from ipybox.mcp_apigen.package.merge import ExistingPackage, merge, read_package
from ipybox.mcp_apigen.package.swap import check_generated, clean_up, swap_in
from ipybox.support.printable import printable
from ipybox.support.safe_directory import Directory, open_directory
from ipybox.support.untrusted_paths import real_path
from ipybox.workspace.registrations import PinnedTool, Registration, ToolSpec, locked_registration, record_file
from ipybox.workspace.seal import seal


class ToolModules(list[str]):
    """The names of a package's modules, in the order of the server's tools, and the changes of the package.

    Attributes:
        server_name: The name that the server has as a package and in tool calls: `brave_search` for `brave-search`.
        wire_names: The tools' own names, by the names of their modules.
        new: Whether there was no package before: nothing counts as added then.
        unknown: Why the changes are unknown; empty if they are known.
        added: The modules of tools that the server did not have when the package was generated before.
        removed: Modules of tools that it no longer has.
        changed: Modules of tools whose name, description, schema or hints differ from the previous registration. Pure
            reordering, for example of `required`, is not reported (`meaning_hash`).
        advice: Advice on the server's parameters, such as secrets in plain text, and on malformed tools.
        registration: The application's record of the tools, which also contains a person's agreement to them.
        definition_chars: Characters of the tools' definitions as JSON, which other clients put into each request.
        kept: The hidden files that preserve edited generated files, and modules with a parser whose tool is gone, by
            their original names.
    """

    def __init__(
        self,
        registration: Registration,
        package: Manifest,
        before: Manifest | None = None,
        *,
        new: bool = False,
        unknown: str = "",
    ):
        """Compares a package with the one that it replaces, if there was one."""
        tools = package.modules
        super().__init__(tools)
        self.registration = registration
        self.server_name = ""
        self.wire_names = dict(zip(tools, map(attrgetter("tool"), tools.values()), strict=True))
        self.new = new
        self.unknown = unknown
        self.added = self.removed = self.changed = ()
        if before is not None:
            old = before.modules
            self.added = tuple(name for name in tools if name not in old)
            self.removed = tuple(name for name in old if name not in tools)
            # Without a hash, a tool counts as changed. So does a module that now belongs to another tool.
            same = [(record.meaning, old[name].meaning, name) for name, record in tools.items() if name in old]
            self.changed = tuple(name for said, said_before, name in same if said is None or said != said_before)
        self.definition_chars = 0
        self.kept: dict[str, str] = {}
        self.advice: list[str] = []

    def warnings(self) -> list[str]:
        """Returns a line for each finding that needs attention."""
        lines = [*self.advice]
        if self.unknown:
            lines.append(f"can't tell which tools changed: {self.unknown}")
        for word, names in (("changed", self.changed), ("added", self.added), ("removed", self.removed)):
            if names:
                hint = "" if word == "removed" else " (read before you trust)"
                lines.append(f"{word}: {', '.join(names)}{hint}")
        for name, place in self.kept.items():
            lines.append(f"{name} was edited or its tool was removed; saved as {place}")
        return [*map(printable, lines)]


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


def _write(
    parent: Directory,
    record: Registration,
    place: Path,
    files: dict[str, str],
    origin: str,
    sealed: str,
    tools: list[ToolSpec],
    launch: str,
) -> ToolModules:
    """Writes a package; `origin` is the hash of all inputs of its files, `sealed` the only valid seal from now on.

    The record pins the `tools`.
    """
    clean_up(parent, place)
    previous = read_package(parent, place.name, files)
    renewal = merge(files, previous)
    unknown = _distrust_reason(previous, record) if previous.names else ""
    modules = ToolModules(
        record, renewal.manifest, None if unknown else previous.manifest, new=not previous.names, unknown=unknown
    )
    if not renewal.files.items() <= previous.contents.items():
        modules.kept = swap_in(parent, place, renewal, previous)
    known = dict(zip(map(attrgetter("name"), tools), tools, strict=True))
    pinned: dict[str, PinnedTool] = {}
    for module in renewal.manifest.modules.values():
        if (tool := known.get(module.tool)) is not None:
            pinned[module.tool] = PinnedTool(module.meaning or "", tool.hints, parameters=tool.parameters)
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
    """Returns why the existing manifest can't be trusted; empty if it can."""
    if previous.manifest is None:
        return f"{MANIFEST} is missing or damaged"
    if not record.matches(previous.contents[MANIFEST]):
        return f"{MANIFEST} was edited, or comes from another machine"
    return ""
