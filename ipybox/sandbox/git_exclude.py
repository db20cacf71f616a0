"""Lists placeholders in `info/exclude` of the git repository that contains a workspace, while they exist.

A `.git` that is itself a placeholder gets that file, too: `git init` keeps it, so it also holds for a repository that
people create while the sandbox runs.

Each workspace has its own lines in that file, between two comments; everything else stays the same, byte for byte.
`git status` does not show excluded names, and `git add -A`, `git stash -u` and `git clean -fd` ignore them.

Code can create a `.git` that leads elsewhere. So no link is followed, and a `.git` that is a file (of a worktree or a
submodule) counts only if the repository that it names also names this file. This module does not run git.
https://git-scm.com/docs/gitrepository-layout

Standard library only, because `placeholders` imports it.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from functools import partial

DOT_GIT, INFO, _EXCLUDE = ".git", "info", "exclude"

#: Maximum bytes of a file of a repository that is read.
_LARGEST = 1 << 20

_WORKTREE = re.compile(rb'^[ \t]*worktree[ \t]*=[ \t]*"?(.*?)"?[ \t\r]*$', re.IGNORECASE | re.MULTILINE)
# Characters with a special meaning in a pattern (gitignore(5)).
_SPECIAL = re.compile(rb"([\\*?\[ ])")


class ExcludeError(Exception):
    """The placeholders can't be listed; the message says why."""


def add(workspace: str, names: Collection[str], known: Collection[str], key: str) -> None:
    """Lists names of a workspace, and removes those listed before.

    Without a repository, it does so only if `.git` is one of the names.

    Args:
        workspace: The workspace.
        names: The names.
        known: All names that may be listed.
        key: The mark of this workspace's lines.

    Raises:
        ExcludeError: If they can't be listed; the file is unchanged.
    """
    places = [] if DOT_GIT not in names else [(os.path.join(workspace, DOT_GIT), ".")]
    if (found := _repository(workspace)) is not None:
        places.append(found)
    for git_dir, prefix in places:
        _change(git_dir, partial(_listed, key=key, names=names, known=known, prefix=prefix))


def remove(workspace: str, known: Collection[str], key: str) -> None:
    """Removes the lines of a workspace.

    Args:
        workspace: The workspace.
        known: All names that may be listed.
        key: The mark of its lines.

    Raises:
        ExcludeError: If the lines can't be removed.
    """
    own = os.path.join(workspace, DOT_GIT)
    places = {own} if os.path.isdir(own) and not os.path.islink(own) else set[str]()
    if (found := _repository(workspace)) is not None:
        places.add(found[0])
    for git_dir in places:
        _change(git_dir, lambda content: _without_block(content, key, known))


def obstacle(workspace: str) -> str | None:
    """Returns why placeholders of a workspace can't be listed; `None` if they can, or without a repository."""
    try:
        if (found := _repository(workspace)) is None:
            return None
        with _opened(found[0]) as git_dir, _info(git_dir) as info:
            _read_exclude(info)
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=git_dir if info is None else info):
                raise ExcludeError(f"{os.path.join(found[0], INFO)} is not writable")
    except (ExcludeError, OSError) as exc:
        return str(exc)
    return None


def _repository(workspace: str) -> tuple[str, str] | None:
    """Returns the git directory of the repository around a workspace, and the workspace's path in its working tree.

    Raises:
        ExcludeError: If its `.git` is a link, or names a repository that does not name it.
    """
    workspace = directory = os.path.realpath(workspace)
    while True:
        if (git_dir := _git_dir(directory)) is not None:
            return git_dir, os.path.relpath(workspace, directory)
        parent = os.path.dirname(directory)
        if parent == directory:
            return None
        directory = parent


def _git_dir(directory: str) -> str | None:
    """Returns the directory of a `.git`, which worktrees share; `None` if there is no repository."""
    dot_git = os.path.join(directory, DOT_GIT)
    try:
        mode = os.lstat(dot_git).st_mode
    except OSError:
        return None
    if stat.S_ISDIR(mode):
        return dot_git if _is_repository(dot_git) else None
    if stat.S_ISLNK(mode):
        raise ExcludeError(f"{dot_git} is a link")
    named = _text(dot_git).removeprefix("gitdir:").strip()
    git_dir = os.path.realpath(os.path.join(directory, named)) if named else ""
    common = _text(os.path.join(git_dir, "commondir")).strip()
    if common:
        shared = os.path.realpath(os.path.join(git_dir, common))
        back = os.path.join(git_dir, _text(os.path.join(git_dir, "gitdir")).strip())
        answers = _same(back, dot_git) and git_dir.startswith(os.path.join(shared, "worktrees", ""))
    else:
        shared = git_dir
        match = _WORKTREE.search(os.fsencode(_text(os.path.join(git_dir, "config"))))
        answers = match is not None and _same(os.path.join(git_dir, os.fsdecode(match[1])), directory)
    if not answers or not _is_repository(shared):
        raise ExcludeError(f"{dot_git} points to a directory that doesn't point back")
    return shared


def _is_repository(git_dir: str) -> bool:
    """Whether git considers a directory a repository, approximately."""
    is_one = os.path.isdir(os.path.join(git_dir, "objects")) and os.path.isdir(os.path.join(git_dir, "refs"))
    return is_one and os.path.lexists(os.path.join(git_dir, "HEAD"))


def _listed(content: bytes, *, key: str, names: Collection[str], known: Collection[str], prefix: str) -> bytes:
    return _with_block(_without_block(content, key, known), key, names, prefix)


def _with_block(content: bytes, key: str, names: Collection[str], prefix: str) -> bytes:
    place = b"/" if prefix == "." else b"/" + _SPECIAL.sub(rb"\\\1", os.fsencode(prefix)) + b"/"
    if b"\n" in place:
        raise ExcludeError("the workspace's path contains a line break")
    begin, end = _marks(key)
    lines = [
        begin + b"; they are removed when it ends",
        *(place + os.fsencode(name) for name in sorted(names)),
        end,
        b"",
    ]
    # The line break in front separates these lines from a last line without one.
    return content + b"\n" + b"\n".join(lines)


def _without_block(content: bytes, key: str, known: Collection[str]) -> bytes:
    """Returns the content without the lines of a key; other lines among them stay."""
    begin, end = map(re.escape, _marks(key))
    own = {os.fsencode(name) for name in known}

    def rest(block: re.Match[bytes]) -> bytes:
        others = [line for line in block[1].split(b"\n")[:-1] if line.rpartition(b"/")[2] not in own]
        before, after = content[: block.start()], content[block.end() :]
        kept = b"".join(line + b"\n" for line in others)
        return b"\n" + kept if before and not before.endswith(b"\n") and (kept or after) else kept

    return re.sub(rb"\n?" + begin + rb"[^\n]*\n(.*?)" + end + rb"(?:\n|\Z)", rest, content, flags=re.DOTALL)


def _marks(key: str) -> tuple[bytes, bytes]:
    name = os.fsencode(key)
    return b"# ipybox " + name + b": names that a running sandbox keeps taken", b"# ipybox " + name + b": end"


def _change(path: str, change: Callable[[bytes], bytes]) -> None:
    """Replaces the content of the file, if it changes; removes a file without content.

    Raises:
        ExcludeError: If the file can't be replaced; it is unchanged.
    """
    try:
        with _opened(path) as git_dir:
            with _info(git_dir) as info:
                before, state = _read_exclude(info)
            after = change(before)
            if after == before:
                return
            if info is None:
                os.mkdir(INFO, dir_fd=git_dir)
            with _info(git_dir) as info:
                assert info is not None
                if after:
                    _replace(info, after, state)
                else:
                    os.unlink(_EXCLUDE, dir_fd=info)
            if not after:
                with suppress(OSError):
                    os.rmdir(INFO, dir_fd=git_dir)
    except OSError as exc:
        raise ExcludeError(f"{os.path.join(path, INFO, _EXCLUDE)}: {exc.strerror}") from exc


@contextmanager
def _opened(path: str) -> Generator[int]:
    git_dir = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield git_dir
    finally:
        os.close(git_dir)


@contextmanager
def _info(git_dir: int) -> Generator[int | None]:
    """Opens `info`; yields `None` if it does not exist."""
    try:
        info = os.open(INFO, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=git_dir)
    except FileNotFoundError:
        yield None
        return
    try:
        yield info
    finally:
        os.close(info)


def _read_exclude(info: int | None) -> tuple[bytes, os.stat_result | None]:
    """Returns the file's content and status; empty and `None` if it does not exist."""
    if info is None:
        return b"", None
    try:
        file = os.open(_EXCLUDE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=info)
    except FileNotFoundError:
        return b"", None
    with open(file, "rb") as opened:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        content = opened.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise OSError(errno.EFBIG, f"larger than {_LARGEST} bytes")
    return content, state


def _replace(info: int, content: bytes, state: os.stat_result | None) -> None:
    """Replaces the file by a new one with the same mode and owner, so that it is never half written."""
    name = f"{_EXCLUDE}.{os.urandom(8).hex()}.ipybox"
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=info)
    try:
        with open(file, "wb") as opened:
            opened.write(content)
            if state is not None:
                if (state.st_uid, state.st_gid) != (os.getuid(), os.getgid()):
                    with suppress(OSError):
                        os.fchown(file, state.st_uid, state.st_gid)
                os.fchmod(file, stat.S_IMODE(state.st_mode))
        os.rename(name, _EXCLUDE, src_dir_fd=info, dst_dir_fd=info)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=info)
        raise


def _text(path: str) -> str:
    """Returns the content of a regular file; empty if it can't be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(file, "rb") as opened:
        is_regular = stat.S_ISREG(os.fstat(file).st_mode)
        return os.fsdecode(opened.read(_LARGEST)).replace("\0", "") if is_regular else ""


def _same(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False
