"""Packs and unpacks directories as tar in memory, without touching the file system.

Packing is reproducible: sorted, without owners and times. A tar to unpack may be hostile: all its names are checked
before any entry is used, and it can't be compressed, so it can't grow.
"""

import io
import re
import tarfile
from collections.abc import Iterable, Iterator
from typing import Self

from ipybox.kernel_mgr.transfer.files import Item, Refused, Transfer
from ipybox.support.printable import printable

#: The modification time of each member, 1980-01-01: programs treat earlier times as mistakes.
MTIME = 315_532_800
#: Maximum global headers, which `tarfile` copies into each member, and maximum characters of a name.
MAX_GLOBAL_HEADERS = 100
MAX_NAME = 4096
#: Maximum bytes of an extended header, and maximum digits in a row in it, which `tarfile` searches in quadratic time.
MAX_HEADER = 1 << 20
MAX_DIGITS = 256
#: Exceptions of `tarfile` for an invalid header, and for many headers about one member.
_UNREADABLE = (tarfile.TarError, ValueError, LookupError, OverflowError, EOFError, RecursionError)


#: The size of a header, the place of its type, and the types of extended headers.
_BLOCK, _TYPE = tarfile.BLOCKSIZE, 156
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_RECORD = re.compile(rb"([1-9][0-9]{0,6}) [^=\n]+=")
_DIGITS = bytes(code if chr(code).isascii() and chr(code).isdigit() else 32 for code in range(256))


class _Member(tarfile.TarInfo):
    """A member whose extended headers are checked first: `tarfile` reads overlapping records in quadratic memory."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        """Returns the next member; raises a ValueError if its headers are not valid."""
        file = tarfile.fileobj
        assert file is not None
        start = file.tell()
        block = file.read(_BLOCK)
        if block[_TYPE : _TYPE + 1] in _EXTENDED:
            _check_records(file.read(min(cls.frombuf(block, "utf-8", "surrogateescape").size, MAX_HEADER + 1)))
        file.seek(start)
        return super().fromtarfile(tarfile)


def _check_records(header: bytes) -> None:
    if len(header) > MAX_HEADER or max(map(len, header.translate(_DIGITS).split()), default=0) > MAX_DIGITS:
        raise ValueError("the tar contains an extended header that is too large")
    at = 0
    size = len(header.rstrip(b"\0"))
    while at < size:
        record = _RECORD.match(header, at)
        end = at if record is None else at + int(record[1])
        if record is None or record.end() >= end or header[end - 1 : end] != b"\n":
            raise ValueError("the tar contains an extended header that is not valid")
        at = end


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
                # Its size must be known first, and it may change while it is read.
                content = b"".join(transfer.chunks(item))
                member.size, member.mode = len(content), 0o755 if item.executable else 0o644
                archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def unpack(packed: bytes, transfer: Transfer, refused: Refused) -> Iterator[Item]:
    """Returns the files and directories in a tar; links and the like are omitted, as are rejected paths.

    Raises:
        ValueError: If it can't be read, or a member is invalid.
    """
    try:
        archive = tarfile.open(fileobj=io.BytesIO(packed), mode="r:", tarinfo=_Member)  # noqa: SIM115 - in memory
    except _UNREADABLE as exc:
        raise ValueError(f"this is not an uncompressed tar archive: {exc}") from exc
    members: dict[tuple[str, ...], tarfile.TarInfo] = {}
    parents: set[tuple[str, ...]] = set()
    for member in _members(archive, len(packed)):
        names = _names(member.name)
        transfer.count(names)
        if not names and member.isdir():
            continue  # the packed directory itself
        if not names:
            raise ValueError(f"the tar contains a file without a name: {printable(member.name)!r}")
        reason = refused(names)
        if reason is None and not member.isreg() and not member.isdir():
            reason = "a link" if member.issym() or member.islnk() else "a special file"
        if reason is not None:
            transfer.omit(names, reason)
            continue
        if names in members and (member.isreg() or members[names].isreg()):
            raise ValueError(f"the tar contains {printable(member.name)} twice")
        parents.update(names[:depth] for depth in range(1, len(names)))
        members[names] = member
    for names in parents & members.keys():
        if members[names].isreg():
            raise ValueError(f"the tar contains {printable('/'.join(names))} both as a file and as a directory")
    # An open file has a buffer, so each is opened only when needed.
    return (
        Item(names, archive.extractfile(member), member.isreg() and bool(member.mode & 0o100))
        for names, member in members.items()
    )


def _members(archive: tarfile.TarFile, size: int) -> Iterator[tarfile.TarInfo]:
    while True:
        try:
            member = archive.next()
        except _UNREADABLE as exc:
            raise ValueError(f"can't read the tar: {exc}") from exc
        if member is None:
            return
        if len(archive.pax_headers) > MAX_GLOBAL_HEADERS:
            raise ValueError(f"the tar contains more than {MAX_GLOBAL_HEADERS} global headers")
        # With such sizes, reads would hit other data, or the same data again.
        if member.size < 0 or member.issparse() or (member.isreg() and member.offset_data + member.size > size):
            raise ValueError(f"{printable(member.name)} in the tar is truncated or sparse")
        member.pax_headers = {}  # they can take much more memory than the tar
        yield member


def _names(name: str) -> tuple[str, ...]:
    if len(name) > MAX_NAME:
        raise ValueError(f"the tar contains a name of more than {MAX_NAME:,} characters")
    names = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or ".." in names or "\0" in name:
        raise ValueError(f"{printable(name)} in the tar points outside it: names must be relative and without '..'")
    return names
