"""Reads the package that a new one replaces: bounded, without following links, and without blocking."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from ipybox.codeact.source import MAX_FILE, MAX_TOTAL
from ipybox.mcp_apigen.package.manifest import MANIFEST, MAX_BYTES, Manifest, sha256_hex
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
