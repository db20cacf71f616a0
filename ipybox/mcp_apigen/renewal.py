"""What a new package takes over from the one before: pure.

Each file that was there is accounted for: its text was generated, and what was appended to it is appended to the new
module of the same tool. All others move into the new package as they are, or under a hidden name, if the place is that
of a generated file. So nothing that people wrote is lost.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import PurePath

from ipybox.mcp_apigen.additions import split
from ipybox.mcp_apigen.manifest import MANIFEST, Manifest, ModuleRecord, digest
from ipybox.mcp_apigen.previous import Previous


@dataclass(frozen=True)
class Renewal:
    """A new package, and what becomes of the files of the old one.

    Attributes:
        manifest: The manifest of the new one.
        files: Its files, with what was appended to the old ones.
        settled: Files of the old one that need not be kept.
        generated: All names of generated files, old and new.
        parked: Hidden names for modules of tools that the server no longer has.
    """

    manifest: Manifest
    files: dict[str, bytes]
    settled: frozenset[str]
    generated: frozenset[str]
    parked: dict[str, str]


@dataclass(frozen=True)
class _Source:
    """A file of the old package that may have appended text: its record, and the new module of the same tool."""

    file: str
    record: ModuleRecord | None
    module: str | None


def renew(new: Mapping[str, str], old: Previous) -> Renewal:
    """Returns what becomes of the files of the old package when the new one takes its place.

    Raises:
        ValueError: The new one has no valid manifest.
    """
    manifest = Manifest.parse(new[MANIFEST].encode())
    if manifest is None:
        raise ValueError(f"the new {MANIFEST} is invalid")
    before = old.manifest or Manifest(server=manifest.server, modules={}, files={})
    files = {name: text.encode() for name, text in new.items()}
    settled = {name for name in files.keys() | before.files if _is_generated(name, files, before, old)}
    parked: dict[str, str] = {}
    kept = {name: record for name, record in before.parked.items() if name in old.names}
    for source in _sources(before, manifest, old):
        records = [source.record, manifest.modules.get(source.module or "")]
        appended, intact = split(old.contents[source.file], [record for record in records if record])
        if source.module:
            files[f"{source.module}.py"] += appended
            kept.pop(source.file, None)
        if intact and (source.module or not appended):
            settled.add(source.file)
        elif source.record and not source.module and appended:
            name = hidden(source.file, lambda name: name in old.names or name in files)
            parked[source.file], kept[name] = name, source.record
    manifest = manifest.model_copy(update={"parked": kept})
    files[MANIFEST] = manifest.text().encode()
    return Renewal(manifest, files, frozenset(settled), frozenset(before.generated | new.keys()), parked)


def hidden(name: str, is_taken: Callable[[str], bool]) -> str:
    """Returns a name beside `name` that is not imported, or listed."""
    path = PurePath(name.lstrip("."))
    names = (f".{path.stem}.old{number if number > 1 else ''}{path.suffix}" for number in count(1))
    return next(each for each in names if not is_taken(each))


def _is_generated(name: str, files: Mapping[str, bytes], before: Manifest, old: Previous) -> bool:
    """Whether a file that is no module is there as it was generated, or will be."""
    if name == MANIFEST:
        return old.manifest is not None
    content = old.contents.get(name)
    return content is not None and (content == files.get(name) or digest(content) == before.files.get(name))


def _sources(before: Manifest, manifest: Manifest, old: Previous) -> Iterator[_Source]:
    """All files with text that may have to be appended to a module, each module once."""
    free: dict[str, list[str]] = {}
    for module, record in manifest.modules.items():
        free.setdefault(record.tool, []).append(module)

    def module_of(tool: str, module: str | None = None) -> str | None:
        same = free.get(tool, [])
        return same.pop(same.index(module) if module in same else 0) if same else None

    for module, record in before.modules.items():
        if f"{module}.py" in old.contents:
            yield _Source(f"{module}.py", record, module_of(record.tool, module))
    for file, record in before.parked.items():
        if file in old.contents and (found := module_of(record.tool)):
            yield _Source(file, record, found)
    for module in [each for modules in free.values() for each in modules]:
        if f"{module}.py" in old.contents and module not in before.modules:
            yield _Source(f"{module}.py", None, module)
