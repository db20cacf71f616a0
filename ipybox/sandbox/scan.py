"""Looks through a workspace for what code in a sandbox must not read or change, however deep it is.

srt would list directories for globs, and search for what it protects, only a few levels deep.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from ipybox.errors import SandboxError

logger = logging.getLogger(__name__)

#: Directories of packages, in which nobody keeps secrets or repositories of their own.
SKIPPED = ("node_modules", "__pycache__", "site-packages")

#: Seconds that a search may take; what is deeper in a very large workspace is not found.
SEARCH_TIMEOUT = 1.0

#: bubblewrap takes a few thousand mounts.
MAX_FOUND = 1000


@dataclass
class Found:
    """Absolute paths of what a search has found."""

    #: What matches a pattern of names.
    matching: list[str] = field(default_factory=list[str])
    #: What has a protected name, below the workspace's own directory.
    protected: list[str] = field(default_factory=list[str])


def search(workspace: Path, root_patterns: Iterable[str], patterns: Iterable[str], protected: Collection[str]) -> Found:
    """Looks through a workspace, without following links.

    Args:
        workspace: Where to look.
        root_patterns: Patterns for names in the workspace itself.
        patterns: Patterns for names anywhere in it.
        protected: Names that are protected wherever they are.

    Raises:
        SandboxError: If there is more than a sandbox can hide.
    """
    found = Found()
    everywhere = tuple(patterns)
    at_root = (*root_patterns, *everywhere)
    pending = deque([str(workspace)])
    deadline = time.monotonic() + SEARCH_TIMEOUT
    while pending:
        if time.monotonic() > deadline:
            logger.warning("%s is large: not all of it was searched for what the sandbox has to hide", workspace)
            break
        directory = pending.popleft()
        is_root = directory == str(workspace)
        for entry in _entries(directory):
            name = entry.name
            if any(fnmatch(name, pattern) for pattern in (at_root if is_root else everywhere)):
                found.matching.append(entry.path)
            elif name in protected:
                if not is_root:
                    found.protected.append(entry.path)
                continue
            if name not in SKIPPED and entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
    if len(found.matching) + len(found.protected) > MAX_FOUND:
        raise SandboxError(
            f"{workspace} holds more than {MAX_FOUND} files that the sandbox has to hide or protect, such as "
            f"{found.matching[0] if found.matching else found.protected[0]}: choose a smaller workspace"
        )
    return found


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:  # not ours to read, so neither is it the code's
        return []
