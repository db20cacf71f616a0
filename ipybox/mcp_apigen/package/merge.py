"""Reads the previous package, bounded and without following links or blocking, and merges it into a new one in memory.

Every existing file is accounted for, so that no user's work is lost. A module consists of generated text and users'
additions, such as an output parser's `ParseResult` and `run_parsed`: the generated text is replaced, and the additions
move to the new module of the same tool. Telling them apart executes and imports nothing. All other files move into the
new package unchanged, or under a hidden name if a generated file has or had their name. Modules with additions whose
tool is gone also get a hidden name.
"""

import ast
import json
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from ipybox.codeact.source import MAX_FILE, MAX_TOTAL, binding
from ipybox.mcp_apigen.package.manifest import MANIFEST, MAX_BYTES, Manifest, ModuleRecord, sha256_hex
from ipybox.support.safe_directory import Directory

#: Maximum number of files and directories in a package.
MAX_NAMES = 20_000


@dataclass(frozen=True)
class ExistingPackage:
    """An existing package as it was read."""

    #: All names in its directory.
    names: frozenset[str] = frozenset()
    #: The readable files among those that were generated or will be.
    contents: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    #: None if it can't be read.
    manifest: Manifest | None = None
    _states: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    @property
    def intact(self) -> Manifest | None:
        """The manifest, if all generated text is unchanged, with or without additions."""
        if self.manifest is None:
            return None
        modules = (each.begins(self.contents.get(f"{name}.py", b"")) for name, each in self.manifest.modules.items())
        others = (sha256_hex(self.contents.get(name, b"")) == known for name, known in self.manifest.files.items())
        return self.manifest if all(modules) and all(others) else None

    def is_unchanged(self, package: Directory, name: str) -> bool:
        """Returns whether a file was read, and has not been replaced or written since."""
        return self._states.get(name) == _state(package, name)


def read_package(parent: Directory, name: str, new: Mapping[str, str]) -> ExistingPackage:
    """Reads the files of a package that its manifest records or that `new` replaces; empty if there is no package.

    Skips files that are not regular, or exceed their new content by `MAX_FILE` bytes each or `MAX_TOTAL` together.
    Raises a FileExistsError for more than `MAX_NAMES` files.
    """
    try:
        with parent.open(name) as package:
            return _read(package, new)
    except FileNotFoundError:
        return ExistingPackage()


def _read(package: Directory, new: Mapping[str, str]) -> ExistingPackage:
    names = frozenset(package.names())
    if len(names) > MAX_NAMES:
        raise FileExistsError(
            f"{package.path} contains more than {MAX_NAMES} files: move out the files that ipybox did not generate"
        )
    sizes = {name: len(text.encode()) for name, text in new.items()}
    left = MAX_TOTAL + sum(sizes.values())
    contents: dict[str, bytes] = {}
    states: dict[str, tuple[int, ...]] = {}
    recorded: Manifest | None = None
    pending = [MANIFEST]
    while pending:
        name = pending.pop()
        limit = min(left, sizes.get(name, 0) + (MAX_BYTES if name == MANIFEST else MAX_FILE))
        with suppress(OSError):
            state = _state(package, name)  # before the file is read, because later writes change it
            contents[name] = package.read(name, limit)
            states[name] = state
            left -= len(contents[name])
        if name == MANIFEST:
            recorded = Manifest.parse(contents.get(MANIFEST, b""))
            wanted = {*new, *(recorded.generated if recorded else ())} - {MANIFEST}
            pending = sorted(names & wanted, reverse=True)
    return ExistingPackage(names, contents, recorded, states)


def _state(package: Directory, name: str) -> tuple[int, ...]:
    state = package.stat(name)
    return state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


@dataclass(frozen=True)
class MergedPackage:
    """A new package, and what happens to the old one's files."""

    manifest: Manifest
    #: The new files, with the additions of the old ones.
    files: dict[str, bytes]
    #: Files of the old package that can be discarded.
    discardable: set[str]
    #: All names of generated files, old and new.
    generated: set[str]


def merge(new: Mapping[str, str], old: ExistingPackage) -> MergedPackage:
    """Merges the old package into the new one."""
    manifest = Manifest.model_validate(json.loads(new[MANIFEST]))
    files = dict(zip(new, map(str.encode, new.values()), strict=True))
    discardable, generated, hashes = set[str](), {*new}, dict[str, str]()
    if old.manifest:
        discardable.add(MANIFEST)
        generated |= old.manifest.generated
        hashes = old.manifest.files
    for name, content in old.contents.items():
        if content == files.get(name) or sha256_hex(content) == hashes.get(name, ""):
            discardable.add(name)
    for file, record, module in _sources(manifest, old):
        records = [record, manifest.modules.get(module or "")]
        appended, intact = split_additions(old.contents[file], [each for each in records if each])
        if module:
            files[f"{module}.py"] += appended
        if intact and (module or not appended):
            discardable.add(file)
    return MergedPackage(manifest, files, discardable, generated)


def _sources(manifest: Manifest, old: ExistingPackage) -> Iterator[tuple[str, ModuleRecord | None, str | None]]:
    """Yields the old files that may contain additions, with their records and the new modules of the same tools."""
    free: dict[str, list[str]] = {}
    for module, record in manifest.modules.items():
        free.setdefault(record.tool, []).append(module)

    def module_of(tool: str, module: str) -> str | None:
        same = free.get(tool, [])
        return same.pop(same.index(module) if module in same else 0) if same else None

    before = old.manifest.modules if old.manifest else {}
    for module, record in before.items():
        if f"{module}.py" in old.contents:
            yield f"{module}.py", record, module_of(record.tool, module)
    for module in chain.from_iterable(free.values()):
        if f"{module}.py" in old.contents and module not in before:
            yield f"{module}.py", None, module


def split_additions(module: bytes, records: Collection[ModuleRecord]) -> tuple[bytes, bool]:
    """Returns the additions to a module, and whether the generated part is unchanged.

    An unchanged part matches one of the records. If it was edited, the additions start after `run_async`, and are empty
    if Python's parser doesn't find that function.
    """
    for record in records:
        if record.begins(module):
            return module[record.length :], True
    generated, appended = _split_after_run_async(module)
    return appended, sha256_hex(generated) in {record.source for record in records}


def _split_after_run_async(module: bytes) -> tuple[bytes, bytes]:
    try:
        # Editors and version control change line ends.
        text = module.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        # The first definition: additions may contain another one.
        last = binding(_parse(text), "run_async")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return module, b""
    lines = text.encode().splitlines(keepends=True)
    end = last.end_lineno if last else None
    return b"".join(lines[:end]), b"".join(lines[end:] if end else [])


def _parse(text: str) -> ast.Module:
    if len(text) > MAX_FILE:
        raise ValueError("too large to parse")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in string literals
        return ast.parse(text)
