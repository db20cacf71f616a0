"""What the host remembers of a registered server."""

import fcntl
import os
import stat
from pathlib import Path

import pytest

from ipybox.workspace import registrations
from ipybox.workspace.registrations import current_seal, locked_registration, record_file

PLACE = Path("/project/mcptools/server")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's state directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def record(manifest: bytes, origin: str, seal: str, place: Path = PLACE) -> None:
    with locked_registration(record_file(place)) as registration:
        registration.write(manifest, origin, seal, {})


def record_modules(modules: dict[str, str], seal: str = "seal") -> None:
    with locked_registration(record_file(PLACE)) as registration:
        registration.write(b"manifest", "", seal, modules)


def modules() -> dict[str, str]:
    with locked_registration(record_file(PLACE)) as registration:
        return registration.modules


def test_nothing_is_remembered_of_a_place_without_a_package():
    assert current_seal(record_file(PLACE)) == ""
    with locked_registration(record_file(PLACE)) as registration:
        assert not registration.matches(b"")
        assert registration.origin == ""


def test_a_registration_is_remembered_until_the_next_one():
    record(b"first manifest", "a-long-origin-of-the-first", "a-long-seal-of-the-first")
    record(b"manifest", "origin", "seal")

    assert current_seal(record_file(PLACE)) == "seal"
    with locked_registration(record_file(PLACE)) as registration:
        assert registration.matches(b"manifest")
        assert not registration.matches(b"first manifest")
        assert registration.origin == "origin"


def test_a_registration_may_have_no_origin():
    record(b"manifest", "", "seal")

    assert current_seal(record_file(PLACE)) == "seal"
    with locked_registration(record_file(PLACE)) as registration:
        assert registration.matches(b"manifest")
        assert registration.origin == ""


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"\xff \xff", b"word", b" " * 5000], ids=repr)
def test_a_damaged_record_stands_for_no_package_and_can_be_replaced(state: Path, content: bytes):
    record(b"manifest", "origin", "seal")
    (file,) = (state / "ipybox" / "packages").iterdir()
    file.write_bytes(content)

    with locked_registration(record_file(PLACE)) as registration:
        assert current_seal(record_file(PLACE)).strip() == ""
        assert not registration.matches(b"manifest")
        assert registration.origin != "origin"
        registration.write(b"manifest", "origin", "new", {})
    assert current_seal(record_file(PLACE)) == "new"


def test_only_a_missing_record_stands_for_no_package(state: Path):
    record(b"manifest", "", "seal")
    (file,) = (state / "ipybox" / "packages").iterdir()
    file.unlink()
    file.symlink_to(file)

    with pytest.raises(OSError, match="symbolic links"):
        current_seal(record_file(PLACE))


def test_a_record_is_left_closed(state: Path):
    record(b"manifest", "", "seal")
    before = len(os.listdir("/dev/fd"))

    current_seal(record_file(PLACE))
    with pytest.raises(ZeroDivisionError), locked_registration(record_file(PLACE)):
        _ = 1 / 0

    assert len(os.listdir("/dev/fd")) == before


def test_modules_are_remembered_after_their_tool_is_gone():
    assert modules() == {}
    record_modules({"get_user": "get.user", "查询": "查询", "odd": "\ud800\n"})
    record_modules({"list_2": "list"}, "another")
    assert modules() == {"get_user": "get.user", "查询": "查询", "odd": "\ud800\n", "list_2": "list"}
    assert current_seal(record_file(PLACE)) == "another"


def test_only_the_newest_of_too_many_modules_are_remembered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registrations, "MAX_MODULES", 3)
    record_modules({"a": "a", "b": "b", "c": "c"})
    record_modules({"a": "a", "d": "d"})
    assert modules() == {"c": "c", "a": "a", "d": "d"}
    record_modules(dict.fromkeys("efgh", ""))
    assert modules().keys() == {"f", "g", "h"}


@pytest.mark.parametrize(
    "end", [b"", b"\n", b'\n{"a": "b"', b"\n[]", b"\n" + b"[" * 100_000], ids=lambda end: repr(end)[:9]
)
def test_a_record_that_was_not_written_to_its_end_has_no_modules(state: Path, end: bytes):
    record_modules({"a": "a"})
    (file,) = (state / "ipybox" / "packages").iterdir()
    file.write_bytes(file.read_bytes().partition(b"\n")[0] + end)
    assert modules() == {}
    assert current_seal(record_file(PLACE)) == "seal"


def test_a_shorter_record_replaces_a_longer_one():
    record(b"manifest", "origin" * 20, "seal" * 20)
    record_modules({"a": "a"})
    assert (modules(), current_seal(record_file(PLACE))) == ({"a": "a"}, "seal")


def test_places_are_remembered_apart():
    record(b"manifest", "", "seal")
    record(b"other", "", "other", Path("/project/mcptools/other"))

    assert current_seal(record_file(PLACE)) == "seal"
    assert current_seal(record_file(Path("/project/mcptools/other"))) == "other"


def test_a_registration_is_locked_while_it_is_held(state: Path):
    record(b"manifest", "", "seal")
    (file,) = (state / "ipybox" / "packages").iterdir()

    with locked_registration(record_file(PLACE)), file.open() as second, pytest.raises(BlockingIOError):
        fcntl.flock(second, fcntl.LOCK_SH | fcntl.LOCK_NB)
    with file.open() as second:
        fcntl.flock(second, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_registrations_can_be_read_by_the_same_user_only(state: Path):
    before = os.umask(0)
    try:
        record(b"manifest", "", "seal")
    finally:
        os.umask(before)
    directory = state / "ipybox" / "packages"
    (file,) = directory.iterdir()

    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
