"""Directories are sent and come back as tar archives."""

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer
from ipybox.kernel_mgr.transfer.files import MAX_OMITTED, Item, Transfer, open_item, write_tree
from ipybox.kernel_mgr.transfer.paths import AllowedDirectories
from ipybox.kernel_mgr.transfer.tar import MAX_HEADER
from ipybox.support.safe_directory import Directory
from tests.kernel_mgr.transfer.contents import members, tar, within
from tests.servers import WAIT
from tests.support.test_safe_directory import names
from tests.support.test_untrusted_file import lowest_free


def with_global_headers(headers: dict[str, str]) -> bytes:
    """Returns a tar of one file, with headers that all its files have."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT, pax_headers=headers) as archive:
        archive.addfile(tarfile.TarInfo("a"))
    return packed.getvalue()


def of_type(kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo()
    member.type, member.linkname = kind, target
    return member


def test_directory_comes_back_as_it_was_sent(workspace: FileTransfer, root: Path):
    (root / "a/empty").mkdir(parents=True)
    (root / "a/script").write_text("#!")
    (root / "a/script").chmod(0o700)
    (root / "a/ä \n").write_text("ä")
    (root / os.fsdecode(b"a/\xff")).write_bytes(b"x")
    (root / "a/zeros").write_bytes(bytes(3_000_000))

    packed = workspace.download("a")
    assert (packed.mime_type, packed.omitted) == ("application/x-tar", ())
    done = workspace.upload("b", packed.data, "tar")
    assert (done.files, done.size) == (4, 3_000_005)
    assert names(root / "a") == names(root / "b")
    for path in (root / "a").iterdir():
        copy = root / "b" / path.name
        assert path.is_dir() or copy.read_bytes() == path.read_bytes()
        assert bool(copy.stat().st_mode & 0o100) == bool(path.stat().st_mode & 0o100)
    assert workspace.download("b").data == packed.data


def test_unpacking_keeps_what_else_is_there(workspace: FileTransfer, root: Path):
    (root / "d/sub").mkdir(parents=True)
    (root / "d/kept").write_text("kept")
    (root / "d/sub/file").write_text("old")

    packed = tar((".", of_type(tarfile.DIRTYPE)), ("./sub/file", b"new"), ("./sub/more", b"more"))
    workspace.upload("d", packed, "tar")
    assert members(workspace.download("d").data) == {
        "kept": "kept",
        "sub": None,
        "sub/file": "new",
        "sub/more": "more",
    }


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_does_not_fit_changes_nothing(kind: str, workspace: FileTransfer, root: Path, outside: Path):
    match kind:
        case "file":
            (root / "z").touch()
            packed = tar(("a", b""), ("z/file", b""))
        case "directory":
            (root / "z/inner").mkdir(parents=True)
            packed = tar(("a", b""), ("z", b""))
        case _:
            (root / "z").symlink_to(outside)
            packed = tar(("a", b""), ("z/file", b""))
    before = names(root)

    with pytest.raises((IsADirectoryError, NotADirectoryError), match=f"{root}/z is .*: nothing was changed"):
        workspace.upload(".", packed, "tar")
    assert names(root) == before
    assert (outside / "file").read_text() == "outside"


def test_what_others_put_beside_it_meanwhile_takes_no_place(root: Path):
    def items() -> Iterator[Item]:
        yield Item(("d", "a"), io.BytesIO(b"a"))
        (scratch,) = root.glob(".transfer.*")
        (scratch / ".git/hooks").mkdir(parents=True)
        (scratch / "d/planted").touch()
        yield Item(("b",), io.BytesIO(b"b"))

    with AllowedDirectories(root).locate(".").open() as directory:
        write_tree(directory, items(), Transfer())
    assert names(root) == ["b", "d", "d/a"]


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_what_takes_the_place_of_a_file_that_was_seen_is_not_opened(kind: str, root: Path, outside: Path):
    class Late(Directory):
        """A directory whose `stat` returns its state of a moment ago."""

        def stat(self, name: str) -> os.stat_result:
            return (outside / "file").stat()

    if kind == "link":
        (root / "file").symlink_to(outside / "file")
    elif kind == "pipe":
        os.mkfifo(root / "file")
    else:
        (root / "file").mkdir()
    with AllowedDirectories(root).locate(".").open() as directory:
        free = lowest_free()
        late = Late(directory.fd, directory.path)

        def read() -> None:
            with open_item(late, ("file",)):
                raise AssertionError("it was opened")

        with pytest.raises(OSError, match=f"{root}/file"):
            within(WAIT, read)
        assert lowest_free() == free


def negative() -> bytes:
    packed = bytearray(tar(("a", b"x")))
    packed[124:136] = b"\xff" * 12  # minus one, in base 256
    packed[148:156] = b" " * 8
    packed[148:156] = b"%06o\0 " % sum(packed[:512])
    return bytes(packed)


def compressed() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a"))
    return packed.getvalue()


def long_names() -> bytes:
    """Thousands of headers about one member, each inside of the one before."""
    header = of_type(tarfile.GNUTYPE_LONGNAME)
    header.name = "x"
    return header.tobuf() * 5000


def records(content: bytes) -> bytes:
    """An extended header with this content."""
    header = of_type(tarfile.XHDTYPE)
    header.size = len(content)
    return header.tobuf() + content.ljust(-(-len(content) // 512) * 512, b"\0") + tar(("a", b""))


@pytest.mark.parametrize(
    ("packed", "problem"),
    [
        (tar(("a", b""), ("/etc/file", b"")), "points outside it"),
        (tar(("a", b""), ("../file", b"")), "points outside it"),
        (tar(("a", b""), ("b/../../file", b"")), "points outside it"),
        (tar(("a", b""), ("a", b"")), "a twice"),
        (tar(("a", b""), ("a/b", b"")), "a both as a file and as a directory"),
        (tar(("a/b", b""), ("a", b"")), "a both as a file and as a directory"),
        (tar(("a", b"x" * 2000))[:1000], "truncated"),
        (tar((".", b"x")), "the tar contains a file without a name: '.'"),
        (negative(), "truncated or sparse|not an uncompressed tar"),  # by the patch release of Python
        (tar(("a", of_type(tarfile.GNUTYPE_SPARSE))), "truncated or sparse"),
        (with_global_headers({f"key{number}": "" for number in range(101)}), "more than 100 global headers"),
        (with_global_headers({"path": "a" * 4097}), "a name of more than 4,096 characters"),
        (records(b"11 key=" + b"1" * 300 + b"\n"), "an extended header that is too large"),
        (records(b"a" * (MAX_HEADER + 1)), "an extended header that is too large"),
        (records(b"no record\n"), "an extended header that is not valid"),
        (records(b"99 key=value\n"), "an extended header that is not valid"),
        (compressed(), "not an uncompressed tar"),
        (long_names(), "tar"),
        (tar(("a", b""))[:512] + of_type(tarfile.GNUTYPE_LONGNAME).tobuf(), "can't read the tar"),
        (b"text", "not an uncompressed tar"),
        (b"", "not an uncompressed tar"),
    ],
    ids=[
        *("absolute", "dots", "inner dots", "twice", "file first", "directory first", "cut off", "no name"),
        *(
            "negative",
            "sparse",
            "global headers",
            "global path",
            "many digits",
            "long header",
            "no record",
            "record beyond its header",
            "compressed",
            "long names",
            "half a name",
            "text",
            "empty",
        ),
    ],
)
def test_tar_that_is_wrong_changes_nothing(packed: bytes, problem: str, workspace: FileTransfer, root: Path):
    with pytest.raises(ValueError, match=problem):
        within(WAIT, lambda: workspace.upload("d", packed, "tar"))
    assert names(root.parent) == ["workspace"]


def test_links_and_devices_in_a_tar_are_left_out(workspace: FileTransfer, root: Path, outside: Path):
    packed = tar(
        ("a", b"a"),
        ("link", of_type(tarfile.SYMTYPE, str(outside))),
        ("link/file", b"new"),
        ("hard", of_type(tarfile.LNKTYPE, str(outside / "file"))),
        ("pipe", of_type(tarfile.FIFOTYPE)),
        ("disk", of_type(tarfile.BLKTYPE)),
    )

    done = workspace.upload("d", packed, "tar")
    assert done.omitted == (
        "link (a link)",
        "hard (a link)",
        "pipe (a special file)",
        "disk (a special file)",
    )
    assert names(root) == ["d", "d/a", "d/link", "d/link/file"]
    assert (outside / "file").read_text() == "outside"


def test_what_is_below_a_directory_that_is_left_out_is_not_told(workspace: FileTransfer, root: Path):
    packed = tar((".ipybox", of_type(tarfile.DIRTYPE)), (".ipybox/seal", b"x"), ("a", b"a"))

    done = workspace.upload("d", packed, "tar")

    assert [each.partition(" ")[0] for each in done.omitted] == [".ipybox"]
    assert names(root) == ["d", "d/a"]


def test_what_is_left_out_is_told_in_few_words(workspace: FileTransfer, root: Path):
    (root / ".git/hooks").mkdir(parents=True)
    for number in range(MAX_OMITTED + 5):
        (root / f"{number}\x1b\n").symlink_to(".")

    omitted = workspace.download(".").omitted
    assert len(omitted) == MAX_OMITTED + 1
    assert omitted[0] == r"0\u001b\u000a (a link)"
    assert omitted[-1] == "5 more"
