"""Finds installed distributions by their metadata alone, without running any package's code.

The metadata is not trusted, nor is the rest of a build's directory: packages' code may have written it.
"""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from ipybox.support.safe_directory import open_untrusted
from ipybox.support.scratch import remove_tree

#: Maximum bytes of metadata to read of a distribution and of all in a directory, of one line, and of a name with its
#: version. The description, which comes last, is not needed.
MAX_METADATA = 1 << 20
MAX_ALL_METADATA = 64 << 20
MAX_LINE = 1 << 12
MAX_NAME = 200

#: Maximum number of a distribution's requirements, of which each takes 50 µs, and of reasons to report.
MAX_REQUIREMENTS = 5000
MAX_REASONS = 25

#: The headers that uv and this module need.
_HEADERS = {"Metadata-Version", "Name", "Version", "Requires-Python", "Provides-Extra", "Requires-Dist"}


@dataclass(frozen=True)
class Installed:
    """An installed distribution: its normalized name, version, metadata directory and metadata headers."""

    name: str
    version: str
    info: Path
    headers: Mapping[str, Sequence[str]]

    def requires(self, extras: Collection[str] = ()) -> Iterator[Requirement]:
        """Yields the requirements that apply in this environment with these extras."""
        for text in self.headers.get("Requires-Dist", [])[:MAX_REQUIREMENTS]:
            # It is not valid, compares what has no order, names an unknown variable, or is too deep.
            with suppress(ValueError, LookupError, RecursionError):
                need = Requirement(text)
                if need.marker is None or any(need.marker.evaluate({"extra": it}) for it in extras or ("",)):
                    yield need


def find(*directories: Path) -> dict[str, Installed]:
    """Returns the distributions in directories by name; the first one of each name wins, as with imports."""
    found: dict[str, Installed] = {}
    for directory in directories:
        left = MAX_ALL_METADATA
        for info in sorted(directory.glob("*.dist-info")):
            data = b"" if info.is_symlink() else _metadata(info, min(left, MAX_METADATA))
            left -= len(data)
            headers = _headers(data)
            with suppress(KeyError, InvalidName, InvalidVersion):
                name = canonicalize_name(headers["Name"][0], validate=True)
                version = str(Version(headers["Version"][0]))
                if len(name) + len(version) <= MAX_NAME:
                    found.setdefault(name, Installed(name, version, info, headers))
    return found


def environment() -> dict[str, Installed]:
    """Returns the distributions in ipybox's own environment, which kernels can also import."""
    return find(*map(Path, filter(None, sys.path)))


def seed(installed: Iterable[Installed], directory: Path) -> None:
    """Writes only the metadata of distributions to a new directory, so that uv considers them installed there."""
    directory.mkdir()
    for found in installed:
        info = directory / found.info.name
        with suppress(FileExistsError):  # another one claims this name
            info.mkdir()
        lines = [f"{key}: {value}\n" for key, values in found.headers.items() for value in values]
        (info / "METADATA").write_text("".join(lines))
        # uv removes these if it replaces the distribution.
        (info / "RECORD").write_text("".join(f"{info.name}/{file},,\n" for file in ("METADATA", "RECORD")))


def discard_seeds(directory: Path) -> dict[str, Installed]:
    """Removes the remaining output of `seed` from a directory and returns the other distributions there by name."""
    for info in directory.glob("*.dist-info"):
        if not info.is_symlink() and not os.path.lexists(info / "WHEEL"):  # every installed distribution has one
            remove_tree(info)
    return find(directory)


def pins(installed: Mapping[str, Installed]) -> list[str]:
    """Returns requirements that pin ipybox and its dependencies, which no other package may replace."""
    pinned: dict[str, str] = {}
    pending, seen = [("ipybox", frozenset[str]())], set[tuple[str, frozenset[str]]]()
    while pending:
        name, extras = current = pending.pop()
        if current not in seen and name in installed:
            seen.add(current)
            pinned[name] = f"{name}=={installed[name].version}"
            needs = installed[name].requires(extras)
            pending += [(canonicalize_name(need.name), frozenset(need.extras)) for need in needs]
    return sorted(pinned.values())


def unmet(earlier: Iterable[Installed], planned: Mapping[str, str]) -> list[str]:
    """Returns the requirements of earlier distributions that conflict with the planned versions, the first of them."""
    conflicts = (
        f"the installed {found.name} {found.version} requires {need}, not {planned[canonicalize_name(need.name)]}"
        for found in earlier
        if found.name not in planned
        for need in found.requires()
        if canonicalize_name(need.name) in planned
        and not need.specifier.contains(planned[canonicalize_name(need.name)], prereleases=True)
    )
    return [*islice(conflicts, MAX_REASONS)]


def _metadata(info: Path, most: int) -> bytes:
    with suppress(OSError), open_untrusted(info / "METADATA") as file:
        return file.read(most)
    return b""


def _headers(data: bytes) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for line in data.decode(errors="replace").split("\n"):
        key, colon, value = line.partition(":")
        if not colon:
            break  # the description
        if key in _HEADERS and len(line) <= MAX_LINE:
            headers.setdefault(key, []).append(value.strip())
    return headers
