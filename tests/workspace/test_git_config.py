import os
import subprocess
from pathlib import Path

import pytest

from ipybox.workspace.git_config import configs_with_credentials, holds_credentials
from tests.servers import WAIT


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        pytest.param('[remote "o"]\n\turl = https://me:word@example.org/x.git\n', True, id="password"),
        pytest.param('[remote "o"]\n\turl = https://ghp_0123456789abcdefghij@github.com/x\n', True, id="token_as_user"),
        pytest.param('[http "https://github.com/"]\n\textraheader = AUTHORIZATION: basic x\n', True, id="extraheader"),
        pytest.param('[http "https://github.com/"] extraHeader=x', True, id="extraheader_on_one_line"),
        pytest.param('[url "https://me:word@example.org/"]\n\tinsteadOf = https://example.org/\n', True, id="url"),
        pytest.param('[credential]\n\thelper = "!f() { echo password=x; }; f"\n', True, id="credential"),
        pytest.param('[Credential "https://example.org"]\n\tusername = me\n', True, id="credential_of_a_host"),
        pytest.param("[github]\n\toauth-token = x\n", True, id="token"),
        pytest.param("[sendemail]\n\tsmtpPass = x\n", True, id="mail"),
        pytest.param("[core]\n".ljust(256 * 1024 + 1), True, id="too_large_to_tell"),
        pytest.param("[core]\n".ljust(256 * 1024), False, id="as_large_as_may_be"),
        pytest.param("[core]\n\tbare = false\n", False, id="core"),
        pytest.param('[remote "o"]\n\turl = https://github.com/x/y.git\n', False, id="https"),
        pytest.param('[remote "o"]\n\turl = https://me@dev.azure.com/x/y\n', False, id="user"),
        pytest.param('[remote "o"]\n\turl = git@github.com:x/y.git\n', False, id="scp"),
        pytest.param('[remote "o"]\n\turl = ssh://git@example.org:22/x/y.git\n', False, id="ssh"),
        pytest.param('[user]\n\temail = me@example.org\n[branch "token"]\n\tmerge = x\n', False, id="other"),
    ],
)
def test_credentials_are_found(tmp_path: Path, text: str, holds: bool):
    (tmp_path / "config").write_text(text)

    assert holds_credentials(str(tmp_path / "config")) == holds


def test_configuration_of_worktrees_and_submodules_counts(tmp_path: Path):
    repository, worktree = tmp_path / "repository", tmp_path / "worktree"
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
    for arguments in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "x"), ("worktree", "add", str(worktree))):
        repository.mkdir(exist_ok=True)
        subprocess.run([*git, *arguments], cwd=repository, check=True, capture_output=True, timeout=WAIT)
    assert list(configs_with_credentials(str(repository / ".git"))) == []
    module = repository / ".git/modules/a/b"
    module.mkdir(parents=True)
    for config in (module / "config", repository / ".git/config"):
        config.write_text("[credential]\n")

    expected = {str(repository / ".git/config"), str(module / "config")}
    assert set(configs_with_credentials(str(repository / ".git"))) == expected
    assert set(configs_with_credentials(str(worktree / ".git"))) == expected


def test_configuration_of_one_worktree_counts(tmp_path: Path):
    own = tmp_path / ".git" / "worktrees" / "x" / "config.worktree"
    own.parent.mkdir(parents=True)
    own.write_text("[credential]\n")
    (tmp_path / ".git" / "config.worktree").write_text("[credential]\n")

    expected = {str(own), str(tmp_path / ".git" / "config.worktree")}
    assert set(configs_with_credentials(str(tmp_path / ".git"))) == expected


@pytest.mark.parametrize("name", ["x", "d\udcff"], ids=["text", "no_text"])
@pytest.mark.parametrize("relative", [True, False], ids=["relative", "absolute"])
def test_a_submodule_leads_to_its_configuration(tmp_path: Path, name: str, relative: bool):
    module = tmp_path / ".git" / "modules" / name
    module.mkdir(parents=True)
    (module / "config").write_text("[credential]\n")
    (tmp_path / "sub").mkdir()
    place = Path("..", ".git", "modules", name) if relative else module
    (tmp_path / "sub" / ".git").write_bytes(b"gitdir: " + os.fsencode(place) + b"\n")

    assert list(configs_with_credentials(str(tmp_path / "sub" / ".git"))) == [str(module / "config")]


def test_directories_that_hold_no_configuration_are_not_searched(tmp_path: Path):
    for name in ("objects", "refs", "logs", "hooks", "info", "x"):
        (tmp_path / ".git" / "modules" / name).mkdir(parents=True)
        (tmp_path / ".git" / "modules" / name / "config").write_text("[credential]\n")

    assert list(configs_with_credentials(str(tmp_path / ".git"))) == [str(tmp_path / ".git/modules/x/config")]


def test_what_is_no_configuration_does_not_stop_the_search(tmp_path: Path):
    os.mkfifo(tmp_path / "config")
    (tmp_path / "file").write_text("gitdir: \0\n")
    (tmp_path / "link").symlink_to("link")
    (tmp_path / "repository" / "commondir").mkdir(parents=True)
    (tmp_path / "directory").write_text("gitdir: repository\n")

    assert not holds_credentials(str(tmp_path / "config"))
    assert not holds_credentials(str(tmp_path / "repository"))
    for name in ("", "file", "link", "directory", "missing"):
        assert list(configs_with_credentials(str(tmp_path / name))) == []


@pytest.mark.parametrize("name", ["modules", "worktrees"])
def test_a_link_out_of_the_repository_is_not_searched(tmp_path: Path, name: str):
    """Code could let the next start search the whole file system, and hide what it finds there."""
    repository, elsewhere = tmp_path / "workspace" / ".git", tmp_path / "elsewhere"
    for place in (repository, elsewhere, tmp_path / "workspace" / "store" / "x"):
        place.mkdir(parents=True)
        (place / "config").write_text("[credential]\n")

    (repository / name).symlink_to(elsewhere)
    assert list(configs_with_credentials(str(repository))) == [str(repository / "config")]

    (repository / name).unlink()
    (repository / name).symlink_to("../store")
    (elsewhere / "link").symlink_to(repository)
    for path in (repository, elsewhere / "link"):
        expected = [str(path / "config"), str(path / name / "x" / "config")]
        assert list(configs_with_credentials(str(path))) == expected
