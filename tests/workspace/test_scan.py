"""What a scan finds, and what takes the place of what a sandbox can't hide by itself."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from ipybox.errors import SandboxError
from ipybox.workspace import scan as module
from ipybox.workspace.names import SECRET_FILES
from ipybox.workspace.scan import MAX_MOUNTS, Found, scan


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def found_in(root: Path, opened: Iterable[str] = ()) -> Found:
    return scan(root, SECRET_FILES, [], [str(root), *(str(root / name) for name in opened)])


def below(root: Path, paths: Iterable[str]) -> set[str]:
    return {os.path.relpath(path, root) for path in paths}


def test_secrets_are_found_wherever_they_are_and_in_any_case(tmp_path: Path):
    secrets = {
        *(".ENV", "a/.Env.local", ".npmrc", "a/.NPMRC", ".mcp.json", "a/.netrc", "a/.pypirc", ".git-credentials"),
        *(".claude/settings.local.json", ".claude/worktrees/x/.env", "a/.claude/settings.local.json"),
        *("node_modules/x/.env", ".venv/lib/site-packages/x/.env", "__pycache__/.env", "[id]/*/.env?"),
    }
    make(tmp_path, *secrets, "env", "a/npmrc", "settings.local.json", ".ipybox/packages/x/.env", "a/x.env")

    assert below(tmp_path, found_in(tmp_path).hidden) == secrets


def test_what_programs_of_the_host_believe_is_found_where_it_exists(tmp_path: Path):
    protected = {
        *("CLAUDE.md", "a/claude.md", "AGENTS.md", "a/.cursorrules", ".github/copilot-instructions.md"),
        *("a/.git", "b/.Git", "a/.vscode", ".cursor", ".devcontainer", "a/.devcontainer.json", "a/.bashrc"),
    }
    make(
        tmp_path,
        *(f"{name}/x" if Path(name).suffix == "" else name for name in protected - {"a/.bashrc", "a/.cursorrules"}),
    )
    make(tmp_path, "a/.bashrc", "a/.cursorrules", "node_modules/x/.vscode/x", ".cursor/CLAUDE.md", "claude")

    assert below(tmp_path, found_in(tmp_path).read_only) == protected


def test_30000_directories_are_all_searched(tmp_path: Path):
    for number in range(30):
        for name in range(1000):
            (tmp_path / f"{number}/{name}").mkdir(parents=True)
    make(tmp_path, "29/999/.env", "0/0/.env", "15/500/.git/config")

    found = found_in(tmp_path)

    assert below(tmp_path, found.hidden) == {"29/999/.env", "0/0/.env"}
    assert below(tmp_path, found.read_only) == {"29/999/.env", "0/0/.env", "15/500/.git"}
    assert found.notices == []


def test_a_directory_that_can_not_be_searched_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make(tmp_path, "a/b/.env", "a/c")
    scandir = os.scandir

    def refusing(path: str) -> object:  # root may read everything
        if path.endswith("/b"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(module.os, "scandir", refusing)
    found = found_in(tmp_path)

    assert below(tmp_path, found.hidden) == {"a/b"}
    assert found.notices == [f"The sandbox hides {tmp_path}/a/b, as it can't be searched for secrets."]


def test_what_can_not_be_read_only_by_its_name_is_hidden(tmp_path: Path):
    make(tmp_path, "[id]/.git/config", "[id]/.env", "a/.git/config")

    found = found_in(tmp_path)

    assert below(tmp_path, found.hidden) == {"[id]/.git", "[id]/.env"}
    assert below(tmp_path, found.read_only) == {"a/.git"}
    assert below(tmp_path, found.replaced) == {"[id]/.git"}
    assert [re.search(r"hides \S+/\[id\]/\.git, as ", notice) is not None for notice in found.notices] == [True]


def test_the_nearest_directory_whose_name_can_be_given_is_hidden(tmp_path: Path):
    make(tmp_path, "a/b/.env", "a/other/.env")
    os.mkdir(os.fsencode(tmp_path) + b"/a/b/\xff")
    (tmp_path / "a/b" / os.fsdecode(b"\xff") / ".env").touch()

    found = found_in(tmp_path)

    assert below(tmp_path, found.hidden) == {"a/b", "a/other/.env"}
    assert found.notices == [f"The sandbox hides {tmp_path}/a/b, as the name of something in it is not UTF-8."]


@pytest.mark.parametrize("opened", [(), ("a/x",)], ids=["the_workspace", "what_the_settings_open"])
def test_what_must_stay_visible_is_not_hidden_in_place_of_a_name(tmp_path: Path, opened: tuple[str, ...]):
    place = tmp_path / "a" if opened else tmp_path
    place.mkdir(exist_ok=True)
    (place / os.fsdecode(b"\xff")).mkdir()
    (place / os.fsdecode(b"\xff") / ".env").touch()

    with pytest.raises(SandboxError, match="its name is not UTF-8: rename it"):
        found_in(tmp_path, opened)


def test_1001_files_with_secrets_are_hidden_one_by_one(tmp_path: Path):
    make(tmp_path, *(f".env{number}" for number in range(1001)))

    found = found_in(tmp_path)

    assert len(found.hidden) == 1001
    assert found.notices == []


def test_too_many_secrets_are_hidden_by_the_deepest_directory_that_suffices(tmp_path: Path):
    make(tmp_path, ".env", "a/.env", "a/b/.env", *(f"a/b/c/{number}/.env" for number in range(MAX_MOUNTS)))

    found = found_in(tmp_path)

    assert below(tmp_path, found.hidden) == {".env", "a/.env", "a/b/.env", "a/b/c"}
    assert found.notices == [
        f"The sandbox hides {tmp_path}/a/b/c, as it holds more files that have to be hidden or protected than a "
        "sandbox can hide."
    ]


def test_too_many_secrets_in_many_directories_are_hidden_by_some_of_these(tmp_path: Path):
    make(tmp_path, *(f"{place}/{number}/.env" for place in range(8) for number in range(300)))

    found = found_in(tmp_path)

    whole = {path for path in below(tmp_path, found.hidden) if not path.endswith(".env")}
    assert 5 <= len(whole) < 8
    assert {path.split("/")[0] for path in below(tmp_path, found.hidden)} == set("01234567")
    assert len(found.notices) == len(whole)


def test_a_directory_of_too_much_that_is_only_protected_can_be_read(tmp_path: Path):
    make(tmp_path, *(f"a/{number}/CLAUDE.md" for number in range(MAX_MOUNTS)))

    found = found_in(tmp_path)

    assert (below(tmp_path, found.hidden), below(tmp_path, found.read_only)) == (set(), {"a"})
    assert found.notices == [
        f"The sandbox lets code write nothing in {tmp_path}/a, as it holds more files that have to be hidden or "
        "protected than a sandbox can hide."
    ]


@pytest.mark.parametrize("directory", ["", "a/"], ids=["the_workspace", "what_the_settings_open"])
def test_what_must_stay_visible_is_not_hidden_for_too_many_secrets(tmp_path: Path, directory: str):
    make(tmp_path, *(f"{directory}.env{number}" for number in range(MAX_MOUNTS + 1)))

    with pytest.raises(SandboxError, match=f"holds more than {MAX_MOUNTS} files that have to be hidden or protected"):
        found_in(tmp_path, ["a/x"])


def test_a_link_to_a_directory_elsewhere_hides_nothing(tmp_path: Path):
    make(tmp_path, "workspace/secrets/x", "elsewhere/x")
    root = tmp_path / "workspace"
    (root / ".env").symlink_to("/usr")
    (root / ".env.d").symlink_to("secrets")
    (root / ".env.file").symlink_to(tmp_path / "elsewhere/x")
    (root / ".env.missing").symlink_to("missing")

    assert below(root, found_in(root).hidden) == {".env.d", ".env.file", ".env.missing"}


def test_a_protected_link_is_told(tmp_path: Path):
    make(tmp_path, "AGENTS.md")
    (tmp_path / "CLAUDE.md").symlink_to("AGENTS.md")

    assert [notice.split(":")[0] for notice in found_in(tmp_path).notices] == [
        f"Code in the sandbox can replace {tmp_path}/CLAUDE.md"
    ]


def test_what_the_settings_open_is_not_protected(tmp_path: Path):
    make(tmp_path, "CLAUDE.md", "a/CLAUDE.md", ".cursor/x", ".vscode/x", ".git/config", ".git/hooks/x")

    found = found_in(tmp_path, ["CLAUDE.md", ".cursor", ".vscode", ".git"])

    assert below(tmp_path, found.read_only) == {"a/CLAUDE.md", ".vscode", ".git/config", ".git/hooks"}


def test_credentials_of_the_repository_that_the_workspace_is_in_are_hidden(tmp_path: Path):
    make(tmp_path, ".git/config", "a/workspace/x")
    (tmp_path / ".git/config").write_text("[credential]\n")

    found = found_in(tmp_path / "a/workspace")

    assert found.hidden == found.replaced == {str(tmp_path / ".git/config")}
    assert [notice.split(", as")[0] for notice in found.notices] == [f"The sandbox hides {tmp_path}/.git/config"]
