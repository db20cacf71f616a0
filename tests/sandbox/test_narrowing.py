"""What remains of a settings file that nobody has trusted: never more than the user's own settings allow."""

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ipybox.sandbox.narrowing import narrowed, opened
from ipybox.sandbox.policy import DEEPEST_PATH, LONGEST_PATH, SandboxPolicy
from ipybox.sandbox.settings import PROFILES, SandboxSettings

OWN = SandboxSettings(
    source="own",
    deny_read=("**/.env*", "~", "/etc/shadow"),
    allow_read=(".", "~/shared"),
    allow_write=(".", "~/shared", "/srv/*"),
    deny_write=("data/raw",),
    allowed_domains=("example.org", "*.example.net", "a.test:443", "10.0.0.1", "[2001:db8::1]:443", "*.0.0.2"),
    denied_domains=("bad.example.net",),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "home"
    monkeypatch.setenv("HOME", str(directory))
    for name in ("work/data/raw", "work/out", "work/WORK", "shared/deep", ".ssh"):
        (directory / name).mkdir(parents=True)
    (directory / "work" / "link-out").symlink_to(directory / ".ssh")
    (directory / "work" / "link-in").symlink_to("out")
    return directory


@pytest.fixture
def workspace(home: Path) -> Path:
    return home / "work"


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (["."], ["."]),
        ([], []),
        (["/"], [".", "~/shared"]),
        (["~"], [".", "~/shared"]),
        (["out"], ["WORK/out"]),
        (["./out/"], ["WORK/out"]),
        (["out/**"], ["WORK/out"]),
        (["out", "out/deep", "./out/../out"], ["WORK/out"]),
        ([".", "out"], ["."]),
        (["~/shared/deep"], ["HOME/shared/deep"]),
        (["~/work/out"], ["WORK/out"]),
        (["HOME/work/out"], ["WORK/out"]),
        (["missing"], ["WORK/missing"]),
        ([".."], [".", "~/shared"]),
        (["../work"], ["."]),
        (["out/../../.ssh"], []),
        (["link-out"], []),
        (["link-out/id_rsa"], []),
        (["link-in"], ["WORK/out"]),
        (["~root", "$HOME", "~nobody/x"], ["WORK/$HOME", "WORK/~root", "WORK/~nobody/x"]),
        (["*"], []),
        (["out/*"], []),
        (["o[u]t"], []),
        (["/srv/x"], ["/srv/x"]),
        (["/dev", "/dev/shm", "/proc/sys", "/sys"], []),
        (["../WORK"], []),
        (["data/raw"], []),
        ([".git"], []),
        ([".GIT", ".claude", "sub/.git", ".mcp.json", ".env"], []),
        (["/" + "a/../" * 70 + "etc"], []),
        (["out/" + "a" * 1100], []),
    ],
    ids=str,
)
def test_only_what_both_sides_let_code_write_remains(wanted: list[str], kept: list[str], home: Path, workspace: Path):
    def named(paths: Iterable[str]) -> tuple[str, ...]:
        return tuple(path.replace("HOME", str(home)) if "HOME/" in path else path for path in paths)

    settings = replace(OWN, allow_write=named(wanted))

    left = narrowed(OWN, settings, workspace).allow_write

    assert left == tuple(path.replace("WORK/", f"{workspace}/", 1) for path in named(kept))


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/srv/".ljust(LONGEST_PATH, "a"), True),
        ("/srv/".ljust(LONGEST_PATH + 1, "a"), False),
        ("/srv" + "/a" * (DEEPEST_PATH - 1), True),
        ("/srv" + "/a" * DEEPEST_PATH, False),
    ],
    ids=["long", "too_long", "deep", "too_deep"],
)
def test_a_path_may_be_as_long_and_as_deep_as_the_policy_judges(path: str, kept: bool, workspace: Path):
    own = replace(OWN, allow_write=("/srv",))

    assert narrowed(own, replace(own, allow_write=(path,)), workspace).allow_write == ((path,) if kept else ())
    assert opened(own, replace(own, allow_write=(path,)), workspace) == (
        {} if kept else {"code may also write": [path]}
    )


def test_git_is_opened_only_if_both_sides_name_it(workspace: Path):
    own = replace(OWN, allow_write=(".", ".git"))
    assert narrowed(own, replace(own, allow_write=(".", ".git")), workspace).allow_write == (".", ".git")
    assert narrowed(own, replace(own, allow_write=(".",)), workspace).allow_write == (".",)


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        ([".", "~/shared"], [".", "~/shared"]),
        ([], []),
        (["out"], ["."]),
        (["~/.ssh"], []),
        (["link-out", "link-out/id_rsa"], []),
        (["/"], [".", "~/shared"]),
        (["~/shared/*/x"], ["~/shared"]),
        (["../shared/deep"], ["~/shared"]),
    ],
    ids=str,
)
def test_only_entries_of_the_user_can_be_read_again(wanted: list[str], kept: list[str], workspace: Path):
    assert narrowed(OWN, replace(OWN, allow_read=tuple(wanted)), workspace).allow_read == tuple(kept)


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        ([], []),
        (["example.org"], ["example.org"]),
        (["EXAMPLE.org:443"], ["EXAMPLE.org:443"]),
        (["www.example.org"], []),
        (["*.example.org"], []),
        (["a.example.net", "*.b.example.net:80"], ["a.example.net", "*.b.example.net:80"]),
        (["example.net"], []),
        (["evilexample.net"], []),
        (["*.net.example"], []),
        (["a.test"], ["a.test:443"]),
        (["a.test:80"], []),
        (["*.test"], ["a.test:443"]),
        (["10.0.0.1:8080"], ["10.0.0.1:8080"]),
        (["[2001:db8::1]"], ["[2001:db8::1]:443"]),
        (["[2001:db8::1]:80"], []),
        (["1.0.0.2"], []),
    ],
    ids=str,
)
def test_only_hosts_that_both_sides_allow_remain(wanted: list[str], kept: list[str], workspace: Path):
    assert narrowed(OWN, replace(OWN, allowed_domains=tuple(wanted)), workspace).allowed_domains == tuple(kept)


@pytest.mark.parametrize("field", ["deny_read", "deny_write", "denied_domains"])
def test_denials_are_united(field: str, workspace: Path):
    own: tuple[str, ...] = getattr(OWN, field)

    wanted = replace(OWN, source="file", file=Path("file"), **{field: ("more.test", own[0])})  # pyright: ignore[reportArgumentType] one of three lists

    left = narrowed(OWN, wanted, workspace)

    assert getattr(left, field) == (*own, "more.test")
    assert (left.source, left.file) == ("own and file", Path("file"))
    assert replace(left, source="own", file=None, **{field: own}) == OWN  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("field", ["allow_local_binding", "weaker_nested_sandbox"])
@pytest.mark.parametrize(("own", "wanted"), list(itertools.product([True, False], repeat=2)))
def test_switches_go_to_the_strict_side_only(field: str, own: bool, wanted: bool, workspace: Path):
    mine: Any = replace(OWN, **{field: own})  # pyright: ignore[reportArgumentType] one of two flags
    theirs: Any = replace(mine, **{field: wanted})

    assert getattr(narrowed(mine, theirs, workspace), field) is (own and wanted)
    assert bool(opened(mine, theirs, workspace)) is (wanted and not own)


def test_a_file_opens_nothing_that_another_entry_still_hides_or_protects(
    home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KUBECONFIG", f"{home}/.kube/config:{home}/config")
    monkeypatch.delenv("NETRC", raising=False)
    own = replace(
        OWN,
        deny_read=("~/.gnupg", "$KUBECONFIG", "$NETRC", "**/*.pem", "~/.s*", "/opt/secret"),
        deny_write=("data/raw", "data/raw/deep", "out/*", ".git", "out/" + "a" * 1100),
    )

    shown = opened(own, replace(own, deny_read=("~",), allow_read=(), deny_write=("data",)), workspace)

    # A variable that is not set here, and patterns, may stand for what is open.
    assert shown == {
        "no longer hidden from code": ["$NETRC", "/opt/secret"],
        "no longer protected from writing": ["out/*", "out/" + "a" * 1100],
    }


def test_a_variable_of_two_paths_is_shown_if_one_of_them_is_opened(
    home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KUBECONFIG", f"{home}/.kube/config:/opt/config")
    own = replace(OWN, deny_read=("$KUBECONFIG",))

    assert opened(own, replace(own, deny_read=("~",)), workspace) == {"no longer hidden from code": ["$KUBECONFIG"]}


#: Entries that a hostile file may have in any list of paths, and those that it has in pairs, too.
ENTRIES = (
    *(".", "..", "/", "~", "~/.ssh", "~/shared", "~/shared/deep", "out", "link-out", "link-in", "link-out/id_rsa"),
    *("data/raw", "data", ".git", ".env", "**/.env*", "*", "/etc", "/etc/shadow", "~/.s*", "missing/../../.ssh"),
    "/" + "a/../" * 70 + "etc",
)
PAIRED = (".", "/", "~/.ssh", "out", "link-out/id_rsa", "data/raw", ".git")
PATHS = (
    *(".", "out/x", "data/raw/x", "data/x", ".git/x", ".env", "out/.env.local", "link-out/x", "link-in/x", "link-out"),
    *(
        "~",
        "~/.ssh",
        "~/.ssh/id_rsa",
        "~/.bashrc",
        "~/shared/x",
        "~/shared/deep/x",
        "/",
        "/etc",
        "/etc/shadow",
        "/srv/x",
    ),
)
HOST_ENTRIES = ("example.org", "*.example.org", "example.org:80", "*.example.net", "a.example.net", "bad.example.net")
HOSTS = ("example.org", "www.example.org", "example.net", "a.example.net", "bad.example.net", "a.test", "evil.test")


def allowed(settings: SandboxSettings, workspace: Path) -> set[tuple[str, str]]:
    policy = SandboxPolicy(settings, workspace)
    read = {("read", path) for path in PATHS if policy.read_denial(path) is None}
    written = {("write", path) for path in PATHS if policy.write_denial(path) is None}
    return read | written | {("host", host) for host in HOSTS if (rule := policy.host_rule(host)) and rule.allowed}


def variants(own: SandboxSettings) -> Iterable[SandboxSettings]:
    for entries in [(), *itertools.combinations(ENTRIES, 1), *itertools.permutations(PAIRED, 2)]:
        yield replace(own, allow_write=entries)
        yield replace(own, allow_read=entries)
        yield replace(own, deny_read=entries[:1], allow_read=entries[1:])
        yield replace(own, deny_read=entries, allow_read=entries, allow_write=entries, deny_write=())
    for entries in [(), *itertools.permutations(HOST_ENTRIES, 2)]:
        yield replace(own, allowed_domains=entries, denied_domains=())
        yield replace(own, allowed_domains=entries, denied_domains=entries[:1])


@pytest.mark.slow
@pytest.mark.parametrize("own", [OWN, *PROFILES.values()], ids=lambda own: own.source)
def test_an_untrusted_file_never_allows_more_than_the_user_does(own: SandboxSettings, workspace: Path):
    own = replace(own, allowed_domains=own.allowed_domains or ("example.org:80", "*.example.net"))
    own = replace(own, deny_read=own.deny_read[:4])  # of many credentials, which take their time
    before = allowed(own, workspace)
    wider = 0
    for wanted in variants(own):
        left = allowed(narrowed(own, wanted, workspace), workspace)
        assert left <= before, wanted
        beyond = allowed(wanted, workspace) - before
        wider += bool(beyond)
        # What a person is shown is complete: a file that would open anything is not passed over.
        assert not beyond or opened(own, wanted, workspace), (wanted, beyond)
    assert wider > 100


def test_all_that_a_file_opens_is_shown(workspace: Path):
    wanted = SandboxSettings(
        source="file",
        deny_read=("~",),
        allow_read=(".", "~/.ssh", "out"),
        allow_write=(".", "/", "link-out", "out"),
        allowed_domains=("example.org", "evil.test"),
        weaker_nested_sandbox=True,
    )

    assert opened(replace(OWN, allow_local_binding=False), wanted, workspace) == {
        "code may also write": ["/", "link-out"],
        "code may also read": ["~/.ssh"],
        "no longer hidden from code": ["**/.env*", "/etc/shadow"],
        "no longer protected from writing": ["data/raw"],
        "code may also reach the hosts": ["evil.test"],
        "hosts no longer denied": ["bad.example.net"],
        "code may listen on ports": ["network.allowLocalBinding"],
        "the sandbox becomes weaker": ["enableWeakerNestedSandbox"],
    }
