"""Searches a workspace, at any depth, for files that code in a sandbox must not read or change.

srt expands globs and searches for protected names only a few levels deep. A scan is always complete: 30,000 directories
take less than a second, as with ripgrep.

Each path found becomes one or more mounts in the sandbox. If srt or bubblewrap can't mount a path, a parent directory
below the workspace replaces it, and a notice says so.
"""

import os
import re
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path

from ipybox.support.errors import SandboxError
from ipybox.support.names import OPENABLE, PACKAGES, PROTECTED_DIRS, PROTECTED_FILES, STATE_DIR, is_protected
from ipybox.support.printable import printable
from ipybox.support.untrusted_paths import real_path
from ipybox.support.way_in import sandbox_file
from ipybox.workspace.git_config import configs_with_credentials
from ipybox.workspace.writable import is_below

#: Maximum number of mounts. bubblewrap needs three seconds for 1,000, and nine for 2,000.
MAX_MOUNTS = 1500

_MOST_NAMED = 5
_MOST_NOTICES = 20


@dataclass
class ScanResult:
    """The absolute paths that a scan found."""

    #: Paths that code must not read.
    hidden: set[str] = field(default_factory=set[str])
    #: Paths in `hidden` that match the patterns in directories above the workspace.
    above: set[str] = field(default_factory=set[str])
    #: Paths that code must not write.
    read_only: set[str] = field(default_factory=set[str])
    #: Notices about paths that are hidden or protected in unexpected ways.
    notices: list[str] = field(default_factory=list[str])


def is_name_pattern(entry: str) -> bool:
    """Returns whether `scan` handles an entry of `denyRead`: `**/` and names, or a pattern for one name."""
    names = entry.removeprefix("**/")
    return "**" not in names and (names != entry or ("/" not in names and re.search(r"[*?[]", names) is not None))


def name_matchers(pattern: str) -> list[re.Pattern[str]]:
    """Returns a case-insensitive expression for each name in a pattern."""
    names = pattern.removeprefix("**/").rstrip("/").split("/")
    return [re.compile(translate(name), re.IGNORECASE) for name in names]


def ends_with(parts: Sequence[str], matchers: Sequence[re.Pattern[str]]) -> bool:
    """Returns whether the last names of a path match."""
    last = parts[len(parts) - len(matchers) :] if len(parts) >= len(matchers) else ()
    return len(last) == len(matchers) and all(map(re.Pattern[str].match, matchers, last))


def scan(workspace: Path, patterns: Iterable[str], readable: Collection[str], writable: Collection[str]) -> ScanResult:
    """Searches a workspace, and its parent directories up to the repository's root, without following links.

    Args:
        workspace: The directory to search.
        patterns: Patterns of names to hide, see `is_name_pattern`.
        readable, writable: Absolute paths that the settings permit to read, or write.

    Raises:
        SandboxError: If there are more files than a sandbox can hide or protect.
    """
    root = str(workspace)
    opened = {*readable, *writable}
    patterns = list(patterns)
    found = _search(root, patterns, writable)
    parent = next((place for place in workspace.parents if (place / ".git").exists()), None)
    if parent is not None:
        found.above.update(_secrets_above(root, str(parent), patterns))
        found.hidden |= found.above
        for config in configs_with_credentials(str(parent / ".git")):
            _hide_config(found, config)
    _replace_inexpressible(found, root, opened)
    _replace_to_fit(found, root, opened)
    if (more := len(found.notices) - _MOST_NOTICES) > 0:
        found.notices[_MOST_NOTICES:] = [f"The sandbox hides or write-protects {more} more paths like these."]
    return found


def _search(root: str, patterns: list[str], writable: Collection[str]) -> ScanResult:
    found = ScanResult()
    matchers = [(pattern.startswith("**/"), name_matchers(pattern)) for pattern in patterns]
    names = [re.escape(name) + r"\Z" for name in (*PROTECTED_FILES, *PROTECTED_DIRS, *PACKAGES, STATE_DIR)]
    is_special = re.compile("|".join((*(each[-1].pattern for _, each in matchers), *names)), re.IGNORECASE).match
    links: list[str] = []
    repositories: set[str] = set()
    pending = [(root, False)]
    while pending:
        directory, closed = pending.pop()
        for entry in _entries(directory, found):
            name, path = entry.name, entry.path
            is_directory = entry.is_dir(follow_symlinks=False)
            if not is_special(name):
                if is_directory:
                    pending.append((path, closed))
                continue
            inside = path[len(root) :].strip("/").split("/")
            matching = any(
                ends_with(inside, each) and (anywhere or len(inside) == len(each)) for anywhere, each in matchers
            )
            if matching and not _leads_out(entry, root):
                found.hidden.add(path)
            is_closed = closed or name in PACKAGES
            if is_protected(name) and not closed:
                if name in OPENABLE and path in writable:
                    found.read_only.update(part for each in OPENABLE[name] if os.path.lexists(part := f"{path}/{each}"))
                else:
                    is_closed = True
                    found.read_only.add(path)
                    if entry.is_symlink():
                        links.append(path)
            if name.lower() == ".git":
                for config in configs_with_credentials(path, repositories):
                    _hide_config(found, config)
            elif is_directory and not (name == STATE_DIR and directory == root):
                pending.append((path, is_closed))
    if links:
        found.notices.append(
            f"Code in the sandbox can replace {_listed(links)}: the sandbox can protect a link's target, but not the "
            "link itself. Replace the links with files."
        )
    return found


def _secrets_above(root: str, top: str, patterns: Iterable[str]) -> Iterator[str]:
    """Yields paths that match `**/` patterns in the directories above `root`, up to and including `top`."""
    matchers = [name_matchers(pattern) for pattern in patterns if pattern.startswith("**/")]
    place = root
    while place != top:
        place = os.path.dirname(place)
        for each in matchers:
            yield from (path for path in _matching(place, each, top) if not is_below(root, path))


def _matching(directory: str, matchers: Sequence[re.Pattern[str]], top: str) -> Iterator[str]:
    try:
        with os.scandir(directory) as found:
            entries = [entry for entry in found if matchers[0].match(entry.name)]
    except OSError:  # a file, or deleted; if ipybox can't search it, neither can code
        return
    for entry in entries:
        if matchers[1:]:
            yield from _matching(entry.path, matchers[1:], top)
        elif not _leads_out(entry, top):
            yield entry.path


def _leads_out(entry: os.DirEntry[str], root: str) -> bool:
    """Returns whether this is a link to a directory elsewhere. Code could use one to have all of `/usr` hidden."""
    try:
        return entry.is_symlink() and entry.is_dir() and not is_below(real_path(entry.path), root)
    except OSError:
        return True


def _hide_config(found: ScanResult, config: str) -> None:
    found.hidden.add(config)
    found.notices.append(
        f"The sandbox hides {printable(config)} because it contains credentials, so git fails in that repository for "
        "code in the sandbox. Move the credentials to a credential helper in your own configuration, or list the file "
        f"in filesystem.allowRead of {sandbox_file()}."
    )


def _replace_inexpressible(found: ScanResult, root: str, opened: Collection[str]) -> None:
    """Replaces paths that can't be expressed in srt's settings: not UTF-8, or with wildcards."""
    directories: set[str] = set()
    for path in found.hidden | found.read_only:
        directory = _text_directory(path)
        if directory is None:
            continue
        directories.add(directory)
        if not _can_stand_in(directory, root, opened):
            raise SandboxError(
                f"the sandbox can't protect {printable(os.fsencode(path).decode(errors='replace'))} because its name "
                "is not UTF-8: rename it"
            )
    _replace(found, directories, "a name in it is not UTF-8")
    patterns = {path for path in found.read_only if re.search(r"[*?[\]]", path)}
    found.read_only -= patterns
    if exposed := patterns - found.hidden:
        found.hidden |= exposed
        found.notices.append(
            f"The sandbox hides {_listed(exposed)} because paths with wildcards can't be made read-only."
        )


def _replace_to_fit(found: ScanResult, root: str, opened: Collection[str]) -> None:
    while (excess := len(points := _mount_points(found, root)) - MAX_MOUNTS) > 0:
        candidates = {
            place: count for place, count in _counts_below(points, root).items() if _can_stand_in(place, root, opened)
        }
        if not candidates:
            raise SandboxError(
                f"the sandbox can't start: {root} contains more than {MAX_MOUNTS} files that must be hidden or "
                f"protected, such as {printable(min(found.hidden | found.read_only))}: remove them, or choose a "
                "smaller workspace"
            )
        enough = [place for place, count in candidates.items() if count >= excess]
        if enough:
            chosen = [max(enough, key=lambda place: (place.count("/"), place))]
        else:  # the largest outermost directories
            outer = (place for place in candidates if os.path.dirname(place) not in candidates)
            chosen: list[str] = []
            for place in sorted(outer, key=lambda place: (-candidates[place], place)):
                chosen.append(place)
                excess -= candidates[place]
                if excess <= 0:
                    break
        _replace(found, chosen, "it contains more files to hide or protect than the sandbox supports")


def _mount_points(found: ScanResult, root: str) -> set[str]:
    """Returns srt's mount points: the paths, and the directories above them, so that these can't be renamed."""
    points = found.hidden | found.read_only
    for path in [*points]:
        for place in _places_above(path, root):
            if place in points:
                break  # so are its parents
            points.add(place)
    return points


def _counts_below(points: Collection[str], root: str) -> Counter[str]:
    below: Counter[str] = Counter()
    for path in sorted(points, key=len, reverse=True):  # innermost first
        if len(parent := os.path.dirname(path)) > len(root):
            below[parent] += below[path] + 1
    return below


def _replace(found: ScanResult, directories: Collection[str], because: str) -> None:
    """Replaces all paths found in these directories with the outermost of the directories."""
    outermost: list[str] = []
    for prefix in sorted(f"{directory}/" for directory in directories):
        if not outermost or not prefix.startswith(outermost[-1]):
            outermost.append(prefix)
    hiding: set[str] = set()
    for paths in (found.hidden, found.read_only):
        for path in [*paths]:
            # In sorted order, a path follows the prefix that it starts with, before any other prefix.
            prefix = outermost[bisect(outermost, f"{path}/") - 1] if outermost else ""
            if prefix and f"{path}/".startswith(prefix):
                paths.remove(path)
                if paths is found.hidden:
                    hiding.add(prefix)
    for prefix in outermost:
        directory = prefix[:-1]
        (found.hidden if prefix in hiding else found.read_only).add(directory)
        verb = "hides" if prefix in hiding else "write-protects"
        found.notices.append(f"The sandbox {verb} {printable(directory)} because {because}.")


def _can_stand_in(directory: str, root: str, opened: Collection[str]) -> bool:
    """Returns whether a directory can be hidden as a whole. If the settings open a path in it, srt would show that."""
    return directory != root and is_below(directory, root) and not any(is_below(it, directory) for it in opened)


def _places_above(path: str, root: str) -> Iterator[str]:
    """Yields the directories between the root and a path, from the inside out."""
    while (path := os.path.dirname(path)) != root and len(path) > len(root):
        yield path


def _text_directory(path: str) -> str | None:
    """Returns the innermost parent directory whose path is UTF-8; None if the path itself is UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError as exc:
        return path[: path.rindex("/", 0, exc.start)]
    return None


def _listed(paths: Collection[str]) -> str:
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return ", ".join(map(printable, sorted(paths)[:_MOST_NAMED])) + more


def _entries(directory: str, found: ScanResult) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except PermissionError:  # code may have removed permissions, to restore them in the next sandbox
        found.hidden.add(directory)
        found.notices.append(f"The sandbox hides {printable(directory)} because it can't be searched for secrets.")
    except OSError:  # deleted, or its path is too long
        pass
    return []
