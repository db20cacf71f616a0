"""Directories as tar, in memory: nothing here touches the file system.

What is made is the same for the same files: sorted, without owners and times. What is unpacked may be hostile: all of
its names are checked before anything of it is used, and it is not compressed, so that it can't grow.
"""

import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from ipybox.printable import printable
from ipybox.transfer.files import Item, Refused, Transfer

#: Seconds of each member's time, 1980-01-01: programs take an earlier one for a mistake.
MTIME = 315_532_800
#: What `tarfile` raises where a header is wrong, and where many headers are about one member.
_UNREADABLE = (tarfile.TarError, ValueError, LookupError, OverflowError, EOFError, RecursionError)

_Members = list[tuple[tuple[str, ...], tarfile.TarInfo]]


def pack(items: Iterable[Item], transfer: Transfer) -> bytes:
    """Returns files and directories as tar."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for item in items:
            member = tarfile.TarInfo("/".join(item.names))
            member.mtime = MTIME
            if item.file is None:
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(member)
            else:
                # Its size has to be known first, and it may change while it is read.
                content = b"".join(transfer.chunks(item))
                member.size, member.mode = len(content), 0o755 if item.executable else 0o644
                archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def unpack(packed: bytes, transfer: Transfer, refused: Refused) -> Iterator[Item]:
    """Returns the files and directories in a tar; links and their like are left out, as is what is refused.

    Raises:
        ValueError: It can't be read, or something in it is not as it has to be.
    """
    archive = _opened(packed)
    return _items(archive, _checked(archive, len(packed), transfer, refused))


def _items(archive: tarfile.TarFile, members: _Members) -> Iterator[Item]:
    for names, member in members:
        file = archive.extractfile(member) if member.isreg() else None
        yield Item(names, file, member.isreg() and bool(member.mode & 0o100))


def _opened(packed: bytes) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=io.BytesIO(packed), mode="r:")
    except _UNREADABLE as exc:
        raise ValueError(f"this is not an uncompressed tar: {exc}") from exc


def _checked(archive: tarfile.TarFile, size: int, transfer: Transfer, refused: Refused) -> _Members:
    members: _Members = []
    files: set[tuple[str, ...]] = set()
    directories: set[tuple[str, ...]] = set()
    for member in _members(archive, size):
        names = _names(member.name)
        transfer.count(Path(*names), len(names))
        if not names and member.isdir():
            continue  # the directory that was packed
        if not names:
            raise ValueError(f"in the tar, {printable(member.name) or 'a file'} has no name")
        reason = refused(names)
        if reason is None and not member.isreg() and not member.isdir():
            reason = "a link" if member.issym() or member.islnk() else "a device or the like"
        if reason is not None:
            transfer.leave_out(names, reason)
            continue
        if names in files or (member.isreg() and names in directories):
            raise ValueError(f"the tar has {printable(member.name)} twice")
        directories.update(names[:depth] for depth in range(1, len(names)))
        (files if member.isreg() else directories).add(names)
        members.append((names, member))
    for names in files & directories:
        raise ValueError(f"the tar has {printable('/'.join(names))} as a file and as a directory")
    return members


def _members(archive: tarfile.TarFile, size: int) -> Iterator[tarfile.TarInfo]:
    while True:
        try:
            member = archive.next()
        except _UNREADABLE as exc:
            raise ValueError(f"the tar can't be read: {exc}") from exc
        if member is None:
            return
        # With such sizes, what is read would be somewhere else, or the same over and over.
        if member.size < 0 or member.issparse() or (member.isreg() and member.offset_data + member.size > size):
            raise ValueError(f"in the tar, {printable(member.name)} is cut off or sparse")
        yield member


def _names(name: str) -> tuple[str, ...]:
    names = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or ".." in names or "\0" in name:
        raise ValueError(
            f"in the tar, {printable(name)} leads out of it: its names have to be relative and without '..'"
        )
    return names
