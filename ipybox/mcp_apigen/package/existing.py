"""Reads the package that a new one replaces: bounded, without following links, and without blocking."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ipybox.codeact.source import MAX_FILE, MAX_TOTAL
from ipybox.mcp_apigen.package import manifest
from ipybox.mcp_apigen.package.manifest import MANIFEST, Manifest, sha256_hex
from ipybox.support.safe_directory import Directory

#: Files and directories of a package, at most.
MAX_NAMES = 20_000


@dataclass(frozen=True)
class ExistingPackage:
    """An existing package as it was read.

    Attributes:
        names: All names in its directory.
        contents: The readable files among those that were generated or will be.
        manifest: Its manifest, if readable.
    """

    names: frozenset[str] = frozenset()
    contents: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    manifest: Manifest | None = None
    _states: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    @property
    def intact(self) -> Manifest | None:
        """The manifest, if all generated parts are unchanged, with any additions."""
        if self.manifest is None:
            return None
        modules = (record.begins(self._content(f"{name}.py")) for name, record in self.manifest.modules.items())
        others = (sha256_hex(self._content(name)) == known for name, known in self.manifest.files.items())
        return self.manifest if all(modules) and all(others) else None

    def _content(self, name: str) -> bytes:
        return self.contents.get(name, b"")

    def is_as_found(self, package: Directory, name: str) -> bool:
        """Returns whether a file whose content was read has not been replaced or written since."""
        return self._states.get(name) == _state(package, name)


def read_package(package: Directory, new: Mapping[str, str]) -> ExistingPackage:
    """Reads the files of a package that are recorded in it, or that will be written again.

    Raises:
        FileExistsError: If the directory holds more than `MAX_NAMES` files.
    """
    names = frozenset(package.names())
    if len(names) > MAX_NAMES:
        raise FileExistsError(
            f"{package.path} contains more than {MAX_NAMES} files: move out the files that ipybox did not generate"
        )
    reader = _Reader(package, new)
    reader.read(MANIFEST, manifest.MAX_BYTES)
    recorded = Manifest.parse(reader.contents.get(MANIFEST, b""))
    wanted = {*new, *(recorded.generated | recorded.parked.keys() if recorded else ())} - {MANIFEST}
    for name in sorted(names & wanted):
        reader.read(name, MAX_FILE)
    return ExistingPackage(names, reader.contents, recorded, reader.states)


class _Reader:
    """Reads files of a package: all together `MAX_TOTAL` bytes beyond the size of the new ones."""

    def __init__(self, package: Directory, new: Mapping[str, str]):
        self.contents: dict[str, bytes] = {}
        self.states: dict[str, tuple[int, ...]] = {}
        self._package = package
        self._sizes = {name: len(text.encode()) for name, text in new.items()}
        self._left = MAX_TOTAL + sum(self._sizes.values())

    def read(self, name: str, more: int) -> None:
        """Reads a file, unless it is not regular, or exceeds its new content by `more` bytes, or the total."""
        limit = min(self._left, self._sizes.get(name, 0) + more)
        try:
            # Before the file is read, because later writes change it.
            state = _state(self._package, name)
            data = self._package.read(name, limit)
        except OSError:
            return
        self._left -= len(data)
        self.contents[name] = data
        self.states[name] = state


def _state(package: Directory, name: str) -> tuple[int, ...]:
    state = package.stat(name)
    return state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
