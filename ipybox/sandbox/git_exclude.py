"""Lists placeholders, while they exist, in `info/exclude` of the git repository that contains the workspace.

A `.git` directory that is itself a placeholder also gets this file: `git init` keeps it, so it applies to a repository
that is created while the sandbox runs. Each workspace has its own block of lines, between two comments. All other
content is preserved byte for byte.

Code can create a `.git` that points elsewhere. So no link is followed, git isn't run, and a `.git` file (of a worktree
or a submodule) counts only if the repository that it names also names this file. Reading takes linear time, and happens
before the lock is acquired, except for the file to change.
https://git-scm.com/docs/gitrepository-layout

Standard library only, because `placeholders` imports it.
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress

from ipybox.support.untrusted_paths import MAX_PATH_FILE, beginning, real_path

DOT_GIT, INFO, _EXCLUDE = ".git", "info", "exclude"

#: Maximum bytes to read from a repository's file.
_LARGEST = 1 << 20

# Special characters in patterns (gitignore(5)).
_SPECIAL = re.compile(rb"([\\*?\[ ])")


class ExcludeError(Exception):
    """The placeholders can't be listed; the message says why."""


def update(workspace: str, names: Collection[str] | None, known: Collection[str], key: str, lock: int) -> None:
    """Lists names of a workspace in place of those listed before; without names, removes the workspace's lines.

    Without a repository, it lists names only if `.git` is among them.

    Args:
        known: All names that may be listed.
        key: Identifies this workspace's lines.
        lock: The lock for all workspaces, held while the file changes.

    Raises:
        ExcludeError: On failure.
    """
    own = os.path.join(workspace, DOT_GIT)
    is_changed = os.path.isdir(own) and not os.path.islink(own) if names is None else DOT_GIT in names
    places = {own: "."} if is_changed else dict[str, str]()
    if (found := _repository(workspace)) is not None:
        places[found[0]] = found[1]
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        for git_dir, prefix in places.items():
            _change(git_dir, key, known, names, prefix)
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)


def _repository(workspace: str) -> tuple[str, str] | None:
    """Returns the git directory of the repository around a workspace, and the workspace's path relative to the tree."""
    workspace = directory = os.path.realpath(workspace)
    while True:
        if (git_dir := _git_dir(directory)) is not None:
            return git_dir, os.path.relpath(workspace, directory)
        parent = os.path.dirname(directory)
        if parent == directory:
            return None
        directory = parent


def _git_dir(directory: str) -> str | None:
    """Returns the git directory for a `.git`, the common one for a worktree; `None` if there is no repository."""
    dot_git = os.path.join(directory, DOT_GIT)
    try:
        mode = os.lstat(dot_git).st_mode
    except OSError:
        return None
    if stat.S_ISDIR(mode):
        return dot_git if _is_repository(dot_git) else None
    if stat.S_ISLNK(mode):
        raise ExcludeError(f"{dot_git} is a link")
    named = _text(dot_git, MAX_PATH_FILE).removeprefix("gitdir:").strip()
    git_dir = real_path(os.path.join(directory, named)) if named else ""
    if common := _text(os.path.join(git_dir, "commondir"), MAX_PATH_FILE).strip():
        shared = real_path(os.path.join(git_dir, common))
        back, target = _text(os.path.join(git_dir, "gitdir")).strip(), dot_git
        answers = git_dir.startswith(os.path.join(shared, "worktrees", ""))
    else:
        shared, answers, target = git_dir, True, directory
        lines = (line.partition("=") for line in _text(os.path.join(git_dir, "config")).splitlines())
        back = next((value.strip().strip('"') for name, _, value in lines if name.strip().lower() == "worktree"), "")
    with suppress(OSError):  # incomplete
        if answers and back and os.path.samefile(os.path.join(git_dir, back), target) and _is_repository(shared):
            return shared
    raise ExcludeError(f"{dot_git} points to a directory that doesn't point back")


def _is_repository(git_dir: str) -> bool:
    """Whether git would consider a directory a repository (approximately)."""
    is_one = os.path.isdir(os.path.join(git_dir, "objects")) and os.path.isdir(os.path.join(git_dir, "refs"))
    return is_one and os.path.lexists(os.path.join(git_dir, "HEAD"))


def _block(key: str, names: Collection[str], prefix: str) -> bytes:
    place = b"/" if prefix == "." else b"/" + _SPECIAL.sub(rb"\\\1", os.fsencode(prefix)) + b"/"
    if b"\n" in place:
        raise ExcludeError("the workspace's path contains a line break")
    begin, end = _delimiters(key)
    lines = [begin + b"; they are removed when it ends", *(place + os.fsencode(name) for name in sorted(names)), end]
    # The leading line break terminates a last line that has none.
    return b"\n" + b"".join(line + b"\n" for line in lines)


def _without_block(content: bytes, key: str, known: Collection[str]) -> bytes:
    """Returns the content without the block of a key, but keeps other lines that were inserted in the block."""
    begin, end = _delimiters(key)
    own = {os.fsencode(name) for name in known}
    before, _, rest = content.partition(b"\n" + begin)
    block, ended, after = rest.partition(b"\n" + end + b"\n")
    if not ended:
        return content
    kept = b"".join(line + b"\n" for line in block.split(b"\n")[1:] if line.rpartition(b"/")[2] not in own) + after
    return before + (b"\n" if kept and before and not before.endswith(b"\n") else b"") + kept


def _delimiters(key: str) -> tuple[bytes, bytes]:
    name = os.fsencode(key)
    return b"# ipybox " + name + b": names that a running sandbox keeps taken", b"# ipybox " + name + b": end"


def _change(path: str, key: str, known: Collection[str], names: Collection[str] | None, prefix: str) -> None:
    """Replaces the block of a key in the file with these names, or deletes the file if it becomes empty.

    Raises:
        ExcludeError: If the file can't be changed. It is then unchanged, or lacks the block of the key.
    """
    try:
        with _opened(path, os.O_DIRECTORY) as git_dir:
            if names is not None:
                with suppress(FileExistsError):
                    os.mkdir(INFO, dir_fd=git_dir)
            with _opened(INFO, os.O_DIRECTORY, git_dir) as info:
                flags = os.O_RDWR | os.O_NONBLOCK | (0 if names is None else os.O_CREAT)
                with _opened(_EXCLUDE, flags, info) as file:
                    before = _content(file)
                    after = _without_block(before, key, known)
                    if after != before:  # in place, to keep the file's owner and mode
                        os.pwrite(file, after, 0)
                        os.ftruncate(file, len(after))
                    if names is not None:
                        _append(file, after, _block(key, names, prefix))
                if before and not after and names is None:
                    os.unlink(_EXCLUDE, dir_fd=info)
                    with suppress(OSError):
                        os.rmdir(INFO, dir_fd=git_dir)
    except OSError as exc:
        if names is not None or exc.errno != errno.ENOENT:
            raise ExcludeError(f"{os.path.join(path, INFO, _EXCLUDE)}: {exc.strerror}") from exc


def _content(file: int) -> bytes:
    state = os.fstat(file)
    if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1:  # code could have made a hard link to another file
        raise OSError(errno.EINVAL, "not a regular file, or one with several names")
    if state.st_size > _LARGEST:
        raise OSError(errno.EFBIG, f"larger than {_LARGEST} bytes")
    return os.pread(file, _LARGEST, 0)


def _append(file: int, content: bytes, block: bytes) -> None:
    try:
        if os.pwrite(file, block, len(content)) < len(block):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.ftruncate(file, len(content))
        raise


@contextmanager
def _opened(path: str, flags: int, directory: int | None = None) -> Generator[int]:
    """Opens a file or directory, but doesn't follow a link in the last component of the path."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW, 0o666, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _text(path: str, limit: int = _LARGEST) -> str:
    return os.fsdecode(beginning(path, limit, os.O_NOFOLLOW)).replace("\0", "")
