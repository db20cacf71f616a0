import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.test_preflight import directory as directory  # a fixture
from tests.sandbox.test_preflight import replace
from tests.servers import WAIT

pytestmark = pytest.mark.sandbox

#: Makes this process somebody who isn't root, or root without any capability, or one who can't have a new /proc.
AS_USER = ("bwrap", "--unshare-user", "--uid", "1000", "--gid", "1000", "--dev-bind", "/", "/")
AS_POWERLESS_ROOT = ("bwrap", "--unshare-user", "--uid", "0", "--gid", "0", "--cap-drop", "ALL", "--dev-bind", "/", "/")
IN_CONTAINER = (
    *("bwrap", "--unshare-user", "--unshare-pid", "--dev-bind", "/", "/"),
    *("--proc", "/proc", "--ro-bind", "/dev/null", "/proc/uptime"),
)
WITHOUT_NAMESPACES = (
    *("unshare", "--user", "--map-root-user", "sh", "-c"),
    *('echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "sh"),
)

#: A bwrap that this machine forbids to work.
FORBIDDEN_BWRAP = """\
case $1 in
--version) echo bubblewrap 0.8.0 ;;
*) echo "bwrap: setting up uid map: Permission denied" >&2; exit 1 ;;
esac
"""


def diagnosed_under(wrapper: tuple[str, ...], arguments: str = "") -> list[str]:
    """The problems that `diagnose` finds in a process that is started by a wrapper."""
    code = f"""
from pathlib import Path
from ipybox.sandbox.preflight import diagnose
print([str(finding) for finding in diagnose({arguments}) if finding.problem is not None])
"""
    command = [*wrapper, sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT * 2, check=False)
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stdout)


def test_forbidden_namespaces_are_found():
    lines = diagnosed_under(WITHOUT_NAMESPACES)
    assert lines[0].startswith(
        "user.max_user_namespaces is 0: this machine doesn't let ordinary users create user namespaces: "
    )
    assert "`sysctl -w user.max_user_namespaces=15000`" in lines[0]


def test_root_without_the_capability_is_found():
    lines = diagnosed_under(AS_POWERLESS_ROOT)
    assert lines[0] == "root lacks the capability CAP_SETFCAP here: grant it, or run ipybox as an ordinary user"


def test_a_container_that_forbids_a_new_proc_needs_the_weaker_sandbox():
    (line,) = diagnosed_under(IN_CONTAINER)
    assert line.startswith("the sandbox can't mount its own /proc here, as in an unprivileged container (bwrap: ")
    assert 'set "enableWeakerNestedSandbox": true' in line
    assert diagnosed_under(IN_CONTAINER, "weaker_nested=True") == []


@pytest.mark.parametrize(
    ("files", "problem", "remedy"),
    [
        pytest.param(
            {"proc/sys/kernel/unprivileged_userns_clone": "0\n"},
            "kernel.unprivileged_userns_clone is 0: this machine doesn't let ordinary users create user namespaces",
            "run `sysctl -w kernel.unprivileged_userns_clone=1` as root",
            id="debian",
        ),
        pytest.param(
            {"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"},
            "kernel.apparmor_restrict_unprivileged_userns is 1: this machine doesn't let ordinary users create user "
            "namespaces",
            "> /etc/apparmor.d/bwrap && apparmor_parser -r /etc/apparmor.d/bwrap` as root",
            id="ubuntu",
        ),
        pytest.param(
            {"proc/sys/kernel/osrelease": "4.4.0-19041-Microsoft\n"},
            "WSL 1 has no user namespaces",
            "run `wsl --set-version DISTRIBUTION 2` in Windows",
            id="wsl1",
        ),
        pytest.param(
            {"proc/sys/kernel/osrelease": "6.6.87.2-microsoft-standard-WSL2\n"},
            "this user can't create namespaces (bwrap: setting up uid map: Permission denied)",
            "permit unprivileged user namespaces",
            id="wsl2",
        ),
        pytest.param(
            {".dockerenv": "", "proc/self/status": "Name:\tx\nSeccomp:\t2\n"},
            "this is a container that filters system calls",
            "or use ipybox's Docker mode",
            id="docker",
        ),
        pytest.param(
            {"run/.containerenv": ""},
            "this is a container that may not create namespaces",
            "or use ipybox's Docker mode",
            id="podman",
        ),
        pytest.param(
            {"proc/1/environ": "HOME=/\0container=lxc\0"},
            "this is a container that may not create namespaces",
            "or use ipybox's Docker mode",
            id="lxc",
        ),
        pytest.param(
            {},
            "this user can't create namespaces (bwrap: setting up uid map: Permission denied)",
            "permit unprivileged user namespaces, or use ipybox's Docker mode",
            id="unknown",
        ),
    ],
)
def test_reasons_why_bubblewrap_fails_are_found(
    directory: Path, tmp_path: Path, files: dict[str, str], problem: str, remedy: str
):
    replace(directory, "bwrap", FORBIDDEN_BWRAP)
    root = tmp_path / "root"
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)

    (line,) = diagnosed_under(AS_USER, f"{str(directory)!r}, root=Path({str(root)!r})")

    assert line.startswith(f"{problem}: ")
    assert remedy in line


def test_the_command_for_apparmor_writes_a_profile_for_this_bwrap(directory: Path, tmp_path: Path):
    replace(directory, "bwrap", FORBIDDEN_BWRAP)
    replace(directory, "apparmor_parser", '[ "$1" = -r ] && exec /bin/cat "$2"')
    setting = tmp_path / "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
    setting.parent.mkdir(parents=True)
    setting.write_text("1\n")
    (line,) = diagnosed_under(AS_USER, f"{str(directory)!r}, root=Path({str(tmp_path)!r})")

    command = line.split("`")[1].replace("/etc/apparmor.d/bwrap", str(tmp_path / "profile"))
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        env={"PATH": str(directory)},
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=True,
    )

    assert done.stdout == f"abi <abi/4.0>,\nprofile bwrap {directory}/bwrap flags=(unconfined) {{ userns, }}\n"
