"""What a scan finds, and what takes the place of what a sandbox can't hide by itself."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from ipybox.errors import SandboxError
from ipybox.support.names import SECRET_FILES
from ipybox.workspace import scan as module
from ipybox.workspace.scan import MAX_MOUNTS, ScanResult, ends_with, is_name_pattern, name_matchers, scan


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def found_in(root: Path, opened: Iterable[str] = ()) -> ScanResult:
    return scan(root, SECRET_FILES, [], [str(root), *(str(root / name) for name in opened)])


def below(root: Path, paths: Iterable[str]) -> set[str]:
    return {os.path.relpath(path, root) for path in paths}


@pytest.mark.parametrize(
    ("entry", "is_one"),
    [
        *((entry, True) for entry in ("**/.env*", "**/x", "**/a/b", "*.pem", "?.key", "[ab].key")),
        *((entry, False) for entry in (".env", "a/b", "a*/b", "~/.s*", "**", "**/a/**", "a/**", "**/**/x", "/etc/*")),
    ],
)
def test_a_pattern_of_names_is_told_from_a_path(entry: str, is_one: bool):
    assert is_name_pattern(entry) is is_one


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("**/.env*", ".env", True),
        ("**/.env*", "a/b/.ENV.local", True),
        ("**/.env*", ".env/a", False),
        ("**/A/b", "a/B", True),
        ("**/a/b/", "x/a/b", True),
        ("**/a/b", "b", False),
        ("**/a/b", "a/x/b", False),
        ("**/a/b", "x/b", False),
        ("**/a/b", "a/bc", False),
    ],
)
def test_a_path_ends_with_names_in_any_case(pattern: str, path: str, matches: bool):
    assert ends_with(path.split("/"), name_matchers(pattern)) is matches


def test_a_pattern_for_one_name_means_the_workspace_itself(tmp_path: Path):
    make(tmp_path, "a.pem", "a/b.pem", "a/c.key", "b.key")

    assert below(tmp_path, scan(tmp_path, ["*.pem", "**/*.key"], [], []).hidden) == {"a.pem", "a/c.key", "b.key"}


def test_secrets_are_found_wherever_they_are_and_in_any_case(tmp_path: Path):
    secrets = {
        *(".ENV", "a/.Env.local", ".npmrc", "a/.NPMRC", ".mcp.json", "a/.netrc", "a/.pypirc", ".git-credentials"),
        *(".claude/settings.local.json", ".claude/worktrees/x/.env", "a/.claude/settings.local.json"),
        *("a/.ipybox/.env", ".env.d/.env", ".env.d"),
        *("node_modules/x/.env", ".venv/lib/site-packages/x/.env", "__pycache__/.env", "[id]/*/.env?"),
    }
    make(tmp_path, *secrets - {".env.d"}, "env", "a/npmrc", "settings.local.json", ".ipybox/packages/x/.env", "a/x.env")

    assert below(tmp_path, found_in(tmp_path).hidden) == secrets


def test_what_programs_of_the_host_believe_is_found_where_it_exists(tmp_path: Path):
    protected = {
        *("CLAUDE.md", "a/claude.md", "AGENTS.md", "a/.cursorrules", ".github/copilot-instructions.md"),
        *("a/.git", "b/.Git", "a/.vscode", ".cursor", ".devcontainer", "a/.devcontainer.json", "a/.bashrc"),
        *("a/opencode.json", ".aider.conf.yml", "a/.Kiro", ".hg"),
    }
    make(
        tmp_path,
        *(f"{name}/x" if Path(name).suffix == "" else name for name in protected - {"a/.bashrc", "a/.cursorrules"}),
    )
    make(tmp_path, "a/.bashrc", "a/.cursorrules", "node_modules/x/.vscode/x", ".cursor/CLAUDE.md", "claude")

    assert below(tmp_path, found_in(tmp_path).read_only) == protected


@pytest.mark.slow
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
    assert found.notices == [f"The sandbox hides {tmp_path}/a/b because it can't be searched for secrets."]


def test_a_directory_that_is_gone_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make(tmp_path, "a/x", "b/.env", "c/x")
    scandir = os.scandir

    def losing(path: str) -> object:
        if path.endswith(("/a", "/c")):
            raise FileNotFoundError(2, "No such file or directory", path)
        return scandir(path)

    monkeypatch.setattr(module.os, "scandir", losing)
    found = found_in(tmp_path)

    assert (below(tmp_path, found.hidden), found.notices) == ({"b/.env"}, [])


def test_what_can_not_be_read_only_by_its_name_is_hidden(tmp_path: Path):
    make(tmp_path, "[id]/.git/config", "[id]/.env", "a/.git/config")

    found = found_in(tmp_path)

    assert below(tmp_path, found.hidden) == {"[id]/.git", "[id]/.env"}
    assert below(tmp_path, found.read_only) == {"a/.git"}
    assert found.notices == [
        f"The sandbox hides {tmp_path}/[id]/.git because paths with wildcards can't be made read-only."
    ]


@pytest.mark.parametrize(("count", "listed"), [(5, "01234"), (6, "01234")], ids=["five", "six"])
def test_a_notice_names_five_paths_and_counts_the_rest(tmp_path: Path, count: int, listed: str):
    make(tmp_path, *(f"{number}*/CLAUDE.md" for number in range(count)))

    (notice,) = found_in(tmp_path).notices

    named = ", ".join(f"{tmp_path}/{number}*/CLAUDE.md" for number in listed)
    more = " and 1 more" if count > 5 else ""
    assert notice == f"The sandbox hides {named}{more} because paths with wildcards can't be made read-only."


def test_the_nearest_directory_whose_name_can_be_given_is_hidden(tmp_path: Path):
    make(tmp_path, "a/b/.env", "a/other/.env")
    os.mkdir(os.fsencode(tmp_path) + b"/a/b/\xff")
    (tmp_path / "a/b" / os.fsdecode(b"\xff") / ".env").touch()

    found = found_in(tmp_path)

    assert below(tmp_path, found.hidden) == {"a/b", "a/other/.env"}
    assert found.notices == [f"The sandbox hides {tmp_path}/a/b because a name in it is not UTF-8."]


def test_several_names_that_are_no_text_are_replaced_by_one_directory(tmp_path: Path):
    for place in ("a/b", "a/c", "d"):
        for number in (1, 2):
            (tmp_path / place / os.fsdecode(bytes((0xFE, number)))).mkdir(parents=True)
            (tmp_path / place / os.fsdecode(bytes((0xFE, number))) / "CLAUDE.md").touch()
    make(tmp_path, "d/.env")

    found = found_in(tmp_path)

    assert (below(tmp_path, found.hidden), below(tmp_path, found.read_only)) == ({"d"}, {"a/b", "a/c"})
    assert len(found.notices) == 3


@pytest.mark.parametrize("opened", [(), ("a/x",)], ids=["the_workspace", "what_the_settings_open"])
def test_what_must_stay_visible_is_not_hidden_in_place_of_a_name(tmp_path: Path, opened: tuple[str, ...]):
    place = tmp_path / "a" if opened else tmp_path
    place.mkdir(exist_ok=True)
    (place / os.fsdecode(b"\xff")).mkdir()
    (place / os.fsdecode(b"\xff") / ".env").touch()

    with pytest.raises(SandboxError) as error:
        found_in(tmp_path, opened)

    assert str(error.value) == f"the sandbox can't protect {place}/\ufffd/.env because its name is not UTF-8: rename it"


def test_what_the_settings_open_for_reading_stays_visible(tmp_path: Path):
    make(tmp_path, "a/x")
    (tmp_path / "a" / os.fsdecode(b"\xff")).mkdir()
    (tmp_path / "a" / os.fsdecode(b"\xff") / ".env").touch()

    assert below(tmp_path, scan(tmp_path, SECRET_FILES, [], []).hidden) == {"a"}
    with pytest.raises(SandboxError, match="its name is not UTF-8: rename it"):
        scan(tmp_path, SECRET_FILES, [str(tmp_path / "a" / "x")], [])


def secrets(directory: str, count: int) -> list[str]:
    return [f"{directory}/.env{number}" for number in range(count)]


@pytest.mark.parametrize(
    ("files", "whole"),
    [
        (secrets("a", 9), []),  # and a itself, so that it can't be renamed
        (secrets("a", 10), ["a"]),
        (secrets("a/b", 8), []),
        (secrets("a/b", 9), ["a/b"]),
        ([*secrets("a/b", 4), *secrets("a/c", 4)], ["a/c"]),
        ([*secrets("a", 6), *secrets("b", 6)], ["b"]),
        ([*secrets("a", 8), *secrets("b/c", 3)], ["b"]),
        ([path for place in "abcd" for path in secrets(place, 3)], ["a", "b"]),
        ([path for place in ("x/a", "b", "c", "d") for path in secrets(place, 3)], ["b", "x"]),
        ([*secrets("a", 2), *(path for place in "bcd" for path in secrets(place, 4))], ["b", "c"]),
    ],
    ids=[
        "fits",
        "one",
        "deep_fits",
        "deep",
        "siblings",
        "last",
        "last_that_suffices",
        "some",
        "outermost",
        "largest_first",
    ],
)
def test_no_more_directories_are_hidden_as_a_whole_than_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], whole: list[str]
):
    monkeypatch.setattr(module, "MAX_MOUNTS", 10)
    make(tmp_path, *files)

    found = found_in(tmp_path)

    kept = {path for path in files if not path.startswith(tuple(f"{place}/" for place in whole))}
    assert below(tmp_path, found.hidden) == kept | set(whole)
    assert len(found.notices) == len(whole)


def test_what_is_protected_and_hidden_is_hidden_by_the_directory_that_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "MAX_MOUNTS", 10)
    make(tmp_path, "a/.env", *(f"a/{number}/CLAUDE.md" for number in range(5)), "b/CLAUDE.md")

    found = found_in(tmp_path)

    assert (below(tmp_path, found.hidden), below(tmp_path, found.read_only)) == ({"a"}, {"b/CLAUDE.md"})


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
        f"The sandbox hides {tmp_path}/a/b/c because it contains more files to hide or protect than the sandbox "
        "supports."
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
        f"The sandbox write-protects {tmp_path}/a because it contains more files to hide or protect than the "
        "sandbox supports."
    ]


@pytest.mark.parametrize("directory", ["", "a/"], ids=["the_workspace", "what_the_settings_open"])
def test_what_must_stay_visible_is_not_hidden_for_too_many_secrets(tmp_path: Path, directory: str):
    make(tmp_path, *(f"{directory}.env{number}" for number in range(MAX_MOUNTS + 1)))

    with pytest.raises(SandboxError) as error:
        found_in(tmp_path, ["a/x"])

    assert str(error.value) == (
        f"the sandbox can't start: {tmp_path} contains more than {MAX_MOUNTS} files that must be hidden or protected, "
        f"such as {tmp_path}/{directory}.env0: remove them, or choose a smaller workspace"
    )


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

    found = found_in(tmp_path)

    assert below(tmp_path, found.read_only) == {"AGENTS.md", "CLAUDE.md"}
    assert found.notices == [
        f"Code in the sandbox can replace {tmp_path}/CLAUDE.md: the sandbox can protect a link's target, but not the "
        "link itself. Replace the links with files."
    ]


def test_repositories_of_packages_can_be_written_and_hide_their_credentials(tmp_path: Path):
    make(tmp_path, "node_modules/x/.git/config", "node_modules/y/z/.git/config", "node_modules/y/.vscode/.env")
    for name in ("x", "y/z"):
        (tmp_path / "node_modules" / name / ".git/config").write_text("[credential]\n")

    found = found_in(tmp_path)

    configs = {"node_modules/x/.git/config", "node_modules/y/z/.git/config"}
    assert below(tmp_path, found.hidden) == {*configs, "node_modules/y/.vscode/.env"}
    assert found.read_only == set()


def test_only_existing_parts_of_an_open_repository_are_protected(tmp_path: Path):
    make(tmp_path, ".git/config", "a/.git/config", "b/.git/hooks/x")

    found = found_in(tmp_path, [".git", "b/.git"])

    assert below(tmp_path, found.read_only) == {".git/config", "a/.git", "b/.git/hooks"}


def test_what_the_settings_open_is_not_protected(tmp_path: Path):
    make(tmp_path, "CLAUDE.md", "a/CLAUDE.md", ".cursor/x", ".vscode/x", ".git/config", ".git/hooks/x")

    found = found_in(tmp_path, ["CLAUDE.md", ".cursor", ".vscode", ".git"])

    assert below(tmp_path, found.read_only) == {"a/CLAUDE.md", ".vscode", ".git/config", ".git/hooks"}


def test_credentials_of_the_repository_that_the_workspace_is_in_are_hidden(tmp_path: Path):
    make(tmp_path, ".git/config", "a/workspace/x")
    (tmp_path / ".git/config").write_text("[credential]\n")

    found = found_in(tmp_path / "a/workspace")

    assert found.hidden == {str(tmp_path / ".git/config")}
    assert found.notices == [
        f"The sandbox hides {tmp_path}/.git/config because it contains credentials, so git fails in that repository "
        "for code in the sandbox. Move the credentials to a credential helper in your own configuration, or list the "
        "file in filesystem.allowRead of a file for sandbox_config."
    ]


def test_only_the_nearest_repository_around_the_workspace_counts(tmp_path: Path):
    make(tmp_path, ".git/config", "a/.git/config", "a/b/workspace/x")
    (tmp_path / ".git/config").write_text("[credential]\n")

    assert found_in(tmp_path / "a/b/workspace").hidden == set()


def test_secrets_above_the_workspace_are_hidden_up_to_the_top_of_its_repository(tmp_path: Path):
    names = (".ENV.local", ".npmrc", ".claude/settings.local.json", "a/.env")
    make(tmp_path / "repository", ".git/HEAD", *names, "x.pem", ".claude/x", "a/b/workspace/x", "a/c/.env")
    make(tmp_path, ".env", "elsewhere/x")
    (tmp_path / "repository/.env").symlink_to(tmp_path / "elsewhere")
    workspace = tmp_path / "repository/a/b/workspace"

    found = scan(workspace, [*SECRET_FILES, "*.pem"], [], [str(workspace)])

    assert found.above == found.hidden == {str(tmp_path / "repository" / name) for name in names}
    assert found.notices == []


def test_a_directory_with_the_name_of_a_secret_is_not_hidden_if_the_workspace_is_in_it(tmp_path: Path):
    make(tmp_path, ".git/HEAD", ".environments/workspace/x", ".env/x")

    assert found_in(tmp_path / ".environments/workspace").hidden == {str(tmp_path / ".env")}
