from pathlib import Path

import pytest

from ipybox.sandbox.policy import Denial, Reason, SandboxPolicy
from ipybox.sandbox.settings import PROFILES, SandboxSettings


def policy_of(
    workspace: Path,
    *,
    deny_read: tuple[str, ...] = (),
    allow_read: tuple[str, ...] = (),
    allow_write: tuple[str, ...] = (".",),
    deny_write: tuple[str, ...] = (),
    allowed_domains: tuple[str, ...] = (),
    denied_domains: tuple[str, ...] = (),
) -> SandboxPolicy:
    settings = SandboxSettings(
        source="test.json",
        deny_read=deny_read,
        allow_read=allow_read,
        allow_write=allow_write,
        deny_write=deny_write,
        allowed_domains=allowed_domains,
        denied_domains=denied_domains,
    )
    return SandboxPolicy(settings, workspace)


@pytest.mark.parametrize(
    ("deny", "allow", "path", "entry"),
    [
        pytest.param(["/a"], [], "/a", "/a", id="the_entry_itself"),
        pytest.param(["/a"], [], "/a/b/c", "/a", id="below_the_entry"),
        pytest.param(["/a/"], [], "/a/b", "/a/", id="entry_with_a_slash"),
        pytest.param(["/a"], [], "/ab", None, id="longer_name"),
        pytest.param(["/a/b"], [], "/a", None, id="above_the_entry"),
        pytest.param(["/a"], [], "/b/../a/x", "/a", id="dots"),
        pytest.param(["/"], [], "/etc/x", "/", id="everything"),
        pytest.param(["secret"], [], "secret/x", "secret", id="relative"),
        pytest.param(["./secret"], [], "other/../secret", "./secret", id="relative_with_dots"),
        pytest.param(["~/.ssh"], [], "~/.ssh/id_rsa", "~/.ssh", id="home"),
        pytest.param(["*.pem"], [], "x.pem", "*.pem", id="star"),
        pytest.param(["*.pem"], [], "sub/x.pem", None, id="star_is_no_slash"),
        pytest.param(["*/x.pem"], [], "sub/x.pem", "*/x.pem", id="star_for_a_directory"),
        pytest.param(["**/x.pem"], [], "x.pem", "**/x.pem", id="two_stars_are_nothing"),
        pytest.param(["**/x.pem"], [], "a/b/x.pem", "**/x.pem", id="two_stars_are_directories"),
        pytest.param(["**/build/**"], [], "a/build/b/c", "**/build/**", id="all_below_each_match"),
        pytest.param(["/a/**"], [], "/a", "/a/**", id="all_below_is_the_directory_too"),
        pytest.param(["file?.[ch]"], [], "file1.c", "file?.[ch]", id="one_character"),
        pytest.param(["file?.[ch]"], [], "file1.o", None, id="other_character"),
        pytest.param([".env*"], [], ".env.local", ".env*", id="star_at_the_end"),
        pytest.param(["/a"], ["/a/b"], "/a/b/c", None, id="allowed_below"),
        pytest.param(["/a"], ["/a/b"], "/a/c", "/a", id="beside_the_allowed"),
        pytest.param(["/a"], ["/a"], "/a/c", None, id="both_the_same"),
        pytest.param(["/a/b"], ["/a"], "/a/b/c", "/a/b", id="denied_below_the_allowed"),
        pytest.param(["/a", "/a/b/*.key"], ["/a/b"], "/a/b/x.key", "/a/b/*.key", id="denied_allowed_denied"),
        pytest.param(["**/.env"], ["sub"], "sub/.env", "**/.env", id="glob_below_the_allowed"),
        pytest.param(["a" * 50 + "*" * 9 + "b"], [], "a" * 900, None, id="many_stars_take_no_time"),
        pytest.param(["/a"], [], "/a\0", None, id="null"),
        pytest.param(["/a"], [], "/a/\udc80\ud800", None, id="surrogate"),
        pytest.param(["/a"], [], "/a" * 600, None, id="endless"),
        pytest.param(["/a"], [], "", None, id="empty"),
    ],
)
def test_the_most_specific_entry_decides_what_can_be_read(
    tmp_path: Path, deny: list[str], allow: list[str], path: str, entry: str | None
):
    rule = policy_of(tmp_path, deny_read=tuple(deny), allow_read=tuple(allow)).read_denial(path)

    assert (rule and rule.entry) == entry
    assert rule is None or rule.reason is Reason.DENY_READ


def test_a_rule_says_where_its_entry_is_and_whether_the_path_is_below(tmp_path: Path):
    policy = policy_of(tmp_path, deny_read=("**/keys",))

    assert policy.read_denial("a/keys/b") == Denial(Reason.DENY_READ, "**/keys", f"{tmp_path}/a/keys", below=True)
    assert policy.read_denial("a/keys") == Denial(Reason.DENY_READ, "**/keys", f"{tmp_path}/a/keys", below=False)


def test_a_link_counts_as_what_it_leads_to(tmp_path: Path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "secrets").mkdir()
    (workspace / "link").symlink_to(tmp_path / "secrets")
    (tmp_path / "alias").symlink_to(workspace)
    policy = policy_of(tmp_path / "alias", deny_read=(str(tmp_path / "secrets"), "x"))

    assert policy.read_denial("link/key") is not None
    assert policy.read_denial(str(workspace / "x")) is not None
    assert policy.write_denial("link/key") == Denial(Reason.NOT_IN_ALLOW_WRITE)
    assert policy.write_denial(str(workspace / "y")) is None


@pytest.mark.parametrize(
    ("allow", "deny", "path", "reason"),
    [
        pytest.param(["."], [], "x/y", None, id="workspace"),
        pytest.param(["."], [], "../x", Reason.NOT_IN_ALLOW_WRITE, id="beside_the_workspace"),
        pytest.param(["."], [], "/etc/hosts", Reason.NOT_IN_ALLOW_WRITE, id="elsewhere"),
        pytest.param(["."], [], "/dev/full", None, id="devices_are_not_up_to_the_settings"),
        pytest.param([], [], "x", Reason.NOT_IN_ALLOW_WRITE, id="nothing_is_allowed"),
        pytest.param(["/"], [], "/etc/hosts", None, id="everything_is_allowed"),
        pytest.param(["out/**"], [], "out/x", None, id="all_below"),
        pytest.param(["."], ["x"], "x/y", Reason.DENY_WRITE, id="denied_below_the_allowed"),
        pytest.param([".", "x/y"], ["x"], "x/y", Reason.DENY_WRITE, id="denied_wins_over_more_specific"),
        pytest.param(["."], [], ".bashrc", Reason.PROTECTED, id="shell"),
        pytest.param(["."], [], "sub/.bashrc", Reason.PROTECTED, id="shell_below"),
        pytest.param(["."], [], ".BashRC", Reason.PROTECTED, id="any_case"),
        pytest.param(["."], [], ".bashrc2", None, id="longer_name"),
        pytest.param(["."], [], ".env", Reason.PROTECTED, id="env"),
        pytest.param(["."], [], ".vscode/settings.json", Reason.PROTECTED, id="editor"),
        pytest.param(["."], [], ".claude/commands/x.md", Reason.PROTECTED, id="claude"),
        pytest.param(["."], [], ".ipybox/x", Reason.PROTECTED, id="state"),
        pytest.param(["."], [], ".git/hooks/pre-commit", Reason.PROTECTED, id="hook"),
        pytest.param(["."], [], "sub/.git/config", Reason.PROTECTED, id="git_config_below"),
        pytest.param(["."], [], ".git/index", Reason.PROTECTED, id="repository"),
        pytest.param([".", ".git"], [], ".git/index", None, id="opened_repository"),
        pytest.param([".", ".git"], [], ".git/hooks/x", Reason.PROTECTED, id="hook_of_an_opened_repository"),
        pytest.param(["."], [], ".gitignore", None, id="gitignore"),
    ],
)
def test_what_is_allowed_and_neither_denied_nor_protected_can_be_written(
    tmp_path: Path, allow: list[str], deny: list[str], path: str, reason: Reason | None
):
    (tmp_path / ".git" / "hooks").mkdir(parents=True)

    rule = policy_of(tmp_path, allow_write=tuple(allow), deny_write=tuple(deny)).write_denial(path)

    assert (rule and rule.reason) == reason


def test_what_ipybox_adds_holds_whatever_the_settings_say(tmp_path: Path):
    settings = SandboxSettings(source="test.json", deny_read=("/home",), allow_read=("/",), allow_write=("/",))
    policy = SandboxPolicy(
        settings, tmp_path, hidden=["/state"], readable=["/home/env"], writable=["/private"], read_only=["/env", ".env"]
    )

    assert policy.read_denial("/state/key") == Denial(Reason.INTERNAL, "/state", "/state", below=True)
    assert policy.read_denial("/home/env/lib") is None
    assert policy.write_denial("/env/lib") == Denial(Reason.INTERNAL, "/env", "/env", below=True)
    assert policy.write_denial("/private/x") is None
    assert policy.write_denial(".env") == Denial(Reason.PROTECTED, ".env", f"{tmp_path}/.env")


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        pytest.param("~/.ssh/id_rsa", True, id="credentials"),
        pytest.param("~/.bash_history", True, id="history"),
        pytest.param(".env", True, id="env"),
        pytest.param("sub/.env.local", True, id="env_below"),
        pytest.param("~/.bashrc", False, id="other_files_of_the_home"),
        pytest.param("data.csv", False, id="workspace"),
        pytest.param("/usr/lib", False, id="system"),
    ],
)
def test_the_default_settings_hide_credentials_only(tmp_path: Path, path: str, hidden: bool):
    assert (SandboxPolicy(PROFILES["default"], tmp_path).read_denial(path) is not None) == hidden


def test_the_workspace_profile_hides_the_home_but_not_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    policy = SandboxPolicy(PROFILES["workspace"], tmp_path / "project")

    assert policy.read_denial("~/notes.txt") == Denial(Reason.DENY_READ, "~", str(tmp_path), below=True)
    assert policy.read_denial("notes.txt") is None
    assert policy.read_denial("sub/.env") is not None
