"""Finds configuration files of git repositories that contain credentials.

Code in a kernel may have written the files, so only regular files are opened, and only up to a maximum size.
"""

import os
import re
from collections.abc import Iterator

from ipybox.support.untrusted_paths import MAX_PATH_FILE, beginning, real_path, walk
from ipybox.workspace.writable import is_below

_LARGEST = 256 * 1024

# Avoids backtracking, which would take quadratic time.
_CREDENTIALS = re.compile(
    rb"""
    ://[^/\s"@:]*+:[^/\s"@]++@                   # a URL with a password
    | https?://[^/\s"@:]{20,}+@                  # or with a token as the user
    | (?:^|\s)\[credential\b                     # a helper may be a command that prints them
    | (?:^|[\s\]])(?:extraheader|smtppass|(?=[\w-]*?(?:password|passwd|token|secret))[\w-]++)[\t ]*+=
    """,
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)


def configs_with_credentials(dot_git: str, searched: set[str] | None = None) -> Iterator[str]:
    """Yields the configuration files of a repository, its worktrees and its submodules that contain credentials.

    `dot_git` is the repository's directory, or a file that names the directory. Many files can name the same
    directory, so directories in `searched` are skipped.
    """
    git_dir = dot_git
    if os.path.isfile(dot_git):
        git_dir = os.path.join(os.path.dirname(dot_git), _text(dot_git).removeprefix("gitdir:").strip())
        git_dir = os.path.normpath(os.path.join(git_dir, _text(os.path.join(git_dir, "commondir")).strip()))
    real = real_path(git_dir)
    if searched is not None:
        if real in searched:
            return
        searched.add(real)
    home = os.path.dirname(real)
    for directory in (git_dir, *_below(f"{git_dir}/modules", home), *_below(f"{git_dir}/worktrees", home)):
        for name in ("config", "config.worktree"):
            path = f"{directory}/{name}"
            if os.path.isfile(path) and holds_credentials(path):
                yield path


def holds_credentials(path: str) -> bool:
    """Returns whether a configuration file contains credentials, or is too large to check."""
    content = beginning(path, _LARGEST + 1)
    return len(content) > _LARGEST or _CREDENTIALS.search(content) is not None


def _below(directory: str, home: str) -> Iterator[str]:
    # Links out of the repository are skipped: code could use them to have the whole file system searched and hidden.
    if is_below(real_path(directory), home):
        # The skipped directories contain many files, but no configuration.
        yield from (parent for parent, _ in walk(directory, ("objects", "refs", "logs", "hooks", "info")))


def _text(path: str) -> str:
    return beginning(path, MAX_PATH_FILE).decode(errors="surrogateescape").replace("\0", "")
