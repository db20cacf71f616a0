import ast
import json
import os
import select
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from ipybox import probe as probing
from ipybox.errors import SandboxError
from ipybox.probe import probe
from ipybox.sandbox.preflight import Finding, diagnose, require_sandbox
from tests.servers import WAIT

NEEDED = ("srt", "node", "bwrap", "socat", "rg", "bash", "which")

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


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory to be PATH, with all that the sandbox needs."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in (*NEEDED, "sh", "env"):
        real = shutil.which(name)
        assert real is not None, f"these tests need {name}"
        (directory / name).symlink_to(os.path.abspath(real))
    return directory


def replace(directory: Path, name: str, script: str) -> None:
    """Puts a shell script in the place of a program."""
    program = directory / name
    program.unlink(missing_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def package(directory: Path, manifest: str) -> Path:
    """Puts an npm package in the place of srt, and returns its directory."""
    copy = directory.parent / "package"
    real = Path(os.path.realpath(directory / "srt")).parents[1]
    (copy / "dist").mkdir(parents=True)
    replace(copy / "dist", "cli.js", "echo 1.0.0")
    shutil.copytree(real / "vendor" / "seccomp", copy / "vendor" / "seccomp")
    (copy / "package.json").write_text(manifest)
    (directory / "srt").unlink()
    (directory / "srt").symlink_to(copy / "dist" / "cli.js")
    return copy


def refusal(path: Path) -> str:
    with pytest.raises(SandboxError) as caught:
        require_sandbox(str(path))
    return str(caught.value)


def problems(findings: Iterable[Finding]) -> list[str]:
    return [str(finding) for finding in findings if finding.problem is not None]


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


def test_srt_is_returned_when_everything_is_there(directory: Path):
    assert require_sandbox(str(directory)) == directory / "srt"


def test_path_of_this_process_is_searched_by_default(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(directory.parent)
    monkeypatch.setenv("PATH", "bin")
    assert require_sandbox() == directory / "srt"


def test_everything_that_is_missing_is_listed_at_once(tmp_path: Path):
    lines = refusal(tmp_path).splitlines()
    assert lines[0] == "the sandbox can't start, and nothing ran without it:"
    assert [line.split()[0] for line in lines[1:]] == list(NEEDED)
    assert all(" is not on PATH: install " in line for line in lines[1:])


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("srt", "install it with `npm install -g @anthropic-ai/sandbox-runtime`"),
        ("node", "install Node.js 20.11 or later"),
        ("bwrap", "`apt-get install bubblewrap` or `dnf install bubblewrap` or `pacman -S bubblewrap`"),
        ("socat", "`apt-get install socat` or `dnf install socat` or `pacman -S socat`"),
        ("rg", "`apt-get install ripgrep` or `dnf install ripgrep` or `pacman -S ripgrep`"),
        ("bash", "`apt-get install bash` or"),
        ("which", "`apt-get install which` or"),
    ],
)
def test_a_missing_program_is_named_with_its_remedy(directory: Path, name: str, remedy: str):
    (directory / name).unlink()
    (line,) = refusal(directory).splitlines()[1:]
    assert line.startswith(f"  {name} is not on PATH: ")
    assert remedy in line


def test_the_installer_of_this_machine_is_the_one_that_is_named(directory: Path):
    (directory / "socat").unlink()
    replace(directory, "dnf", "exit 1")
    assert refusal(directory).endswith("install it with `dnf install socat` as root")


def test_a_file_that_is_not_executable_is_missing(directory: Path):
    replace(directory, "rg", "exit 0")
    (directory / "rg").chmod(0o644)
    assert "rg is not on PATH" in refusal(directory)


@pytest.mark.parametrize(
    ("version", "accepted"),
    [("0.0.77", False), ("0.0.9", False), ("0.0.78", True), ("0.0.100", True), ("0.1.0", True), ("1.0.0", True)],
)
def test_srt_must_be_recent(directory: Path, version: str, accepted: bool):
    package(directory, json.dumps({"version": version}))
    if accepted:
        require_sandbox(str(directory))
    else:
        assert refusal(directory).splitlines()[1:] == [
            f"  srt {version} is older than 0.0.78: "
            "update it with `npm install -g @anthropic-ai/sandbox-runtime@latest`"
        ]


@pytest.mark.parametrize("manifest", ["", "{", "[]", "{}", '{"version": 1}', "\xff"])
def test_srt_without_a_readable_manifest_must_tell_its_version_itself(directory: Path, manifest: str):
    copy = package(directory, manifest)
    replace(copy / "dist", "cli.js", "echo 0.0.79")
    require_sandbox(str(directory))


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        pytest.param("echo 0.0.40", "srt 0.0.40 is older than 0.0.78", id="old"),
        pytest.param("echo 1.0.0", "srt does not tell its version, as releases that are too old", id="untold"),
        pytest.param("echo hello", "srt does not tell its version, as releases that are too old", id="none"),
        pytest.param("echo no config >&2; exit 3", "srt is broken, it exits with 3: no config", id="failing"),
        pytest.param("exec sleep 1000", "srt is broken, it does not end within 0.3 s", id="hanging"),
    ],
)
def test_srt_that_npm_did_not_install_is_asked(
    directory: Path, script: str, problem: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(probing, "PROBE_TIMEOUT", 0.3)
    if "sleep" in script:
        (directory / "sleep").symlink_to("/bin/sleep")
    replace(directory, "srt", script)
    (line,) = refusal(directory).splitlines()[1:]
    assert line.startswith(f"  {problem}: ")
    assert "npm install -g" in line


def test_srt_that_npm_did_not_install_may_bring_its_own_node(directory: Path):
    replace(directory, "srt", "echo 0.0.78")
    (directory / "node").unlink()
    require_sandbox(str(directory))


def test_srt_without_its_filter_is_refused_as_it_would_run_without(directory: Path):
    copy = package(directory, '{"version": "0.0.78"}')
    shutil.rmtree(copy / "vendor")
    (line,) = refusal(directory).splitlines()[1:]
    assert line.startswith("  srt is not complete: ")
    assert "blocks unix sockets" in line


def test_no_program_is_started_before_a_start(directory: Path):
    started = directory.parent / "started"
    for name in NEEDED[1:]:
        replace(directory, name, f"echo {name} >> {started}")
    require_sandbox(str(directory))
    assert not started.exists()


def test_the_check_before_a_start_costs_next_to_nothing():
    durations: list[float] = []
    for _ in range(20):
        start = time.perf_counter()
        require_sandbox()
        durations.append(time.perf_counter() - start)
    assert statistics.median(durations) < 0.015


def test_diagnosis_of_a_good_machine_has_versions_and_no_problem(directory: Path):
    findings = {finding.what: finding for finding in diagnose(str(directory))}
    assert problems(findings.values()) == []
    assert findings["node"].found == f"{probe([str(directory / 'node'), '--version']).output[1:-1]} ({directory}/node)"
    assert findings["user namespaces"].found == "work"
    assert str(findings["user namespaces"]) == "user namespaces: work"


@pytest.mark.parametrize(
    ("name", "script", "problem"),
    [
        pytest.param("node", "echo v20.10.0", "node 20.10.0 is older than 20.11.0: install", id="old_node"),
        pytest.param("rg", "echo >&2 no pcre; exit 127", "rg is broken, it exits with 127: no pcre", id="failing"),
        pytest.param("socat", "kill -SEGV $$", "socat is broken, it is killed by signal 11: install", id="crashing"),
        pytest.param("bwrap", "exit 1", "bwrap is broken, it exits with 1: install", id="silent"),
        pytest.param("bash", "/bin/sleep 1000", "bash is broken, it does not end within 1 s: install", id="hanging"),
    ],
)
def test_diagnosis_runs_the_programs(
    directory: Path, name: str, script: str, problem: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(probing, "PROBE_TIMEOUT", 1.0)
    replace(directory, name, script)
    (line,) = [line for line in problems(diagnose(str(directory))) if not line.startswith("srt ")]
    assert line.startswith(problem)


def test_diagnosis_runs_srt_too(directory: Path):
    copy = package(directory, '{"version": "0.0.78"}')
    replace(copy / "dist", "cli.js", "echo 'node:internal:1\n\nError: no module commander\n\nNode.js v20' >&2; exit 1")
    (line,) = problems(diagnose(str(directory)))
    assert line.startswith("srt is broken, it exits with 1: Error: no module commander: install it with `npm")


def test_diagnosis_of_an_empty_machine_is_that_of_the_quick_check(tmp_path: Path):
    lines = problems(diagnose(str(tmp_path)))
    assert refusal(tmp_path).splitlines()[1:] == [f"  {line}" for line in lines]


def test_forbidden_namespaces_are_found():
    lines = diagnosed_under(WITHOUT_NAMESPACES)
    assert lines[0].startswith(
        "user.max_user_namespaces is 0: this machine forbids user namespaces to ordinary users: "
    )
    assert "`sysctl -w user.max_user_namespaces=15000`" in lines[0]


def test_root_without_the_capability_is_found():
    lines = diagnosed_under(AS_POWERLESS_ROOT)
    assert lines[0] == "root lacks the capability CAP_SETFCAP here: grant it, or run ipybox as an ordinary user"


def test_a_container_that_forbids_a_new_proc_needs_the_weaker_sandbox():
    (line,) = diagnosed_under(IN_CONTAINER)
    assert line.startswith("a sandbox can't have a /proc of its own here, as in an unprivileged container (bwrap: ")
    assert 'set "enableWeakerNestedSandbox": true' in line
    assert diagnosed_under(IN_CONTAINER, "weaker_nested=True") == []


@pytest.mark.parametrize(
    ("files", "problem", "remedy"),
    [
        pytest.param(
            {"proc/sys/kernel/unprivileged_userns_clone": "0\n"},
            "kernel.unprivileged_userns_clone is 0: this machine forbids user namespaces to ordinary users",
            "run `sysctl -w kernel.unprivileged_userns_clone=1` as root",
            id="debian",
        ),
        pytest.param(
            {"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"},
            "kernel.apparmor_restrict_unprivileged_userns is 1: this machine forbids user namespaces to ordinary users",
            "give bwrap an AppArmor profile that grants userns",
            id="ubuntu",
        ),
        pytest.param(
            {".dockerenv": "", "proc/self/status": "Name:\tx\nSeccomp:\t2\n"},
            "this is a container that filters system calls",
            "or use ipybox's Docker mode",
            id="docker",
        ),
        pytest.param(
            {"run/.containerenv": ""},
            "this is a container that may not make namespaces",
            "or use ipybox's Docker mode",
            id="podman",
        ),
        pytest.param(
            {"proc/1/environ": "HOME=/\0container=lxc\0"},
            "this is a container that may not make namespaces",
            "or use ipybox's Docker mode",
            id="lxc",
        ),
        pytest.param(
            {},
            "this user can't make namespaces (bwrap: setting up uid map: Permission denied)",
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


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: Path):
    alive = tmp_path / "alive"  # open as long as one of them is there
    os.mkfifo(alive)
    fd = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    try:
        script = f"trap '' TERM; exec 3> {alive}; echo started >&3; sleep 1000 & while :; do sleep 1000; done"
        outcome = probe(["/bin/sh", "-c", script], timeout=0.5)
        assert outcome.failure == "does not end within 0.5 s"
        assert os.read(fd, 100) == b"started\n"
        poll = select.poll()
        poll.register(fd, 0)
        assert poll.poll(WAIT * 1000) == [(fd, select.POLLHUP)]
    finally:
        os.close(fd)


def test_a_child_that_keeps_the_output_open_is_killed_and_no_failure():
    start = time.monotonic()
    outcome = probe(["/bin/sh", "-c", "sleep 1000 & echo 1.2"], timeout=0.5)
    assert (outcome.output, outcome.failure) == ("1.2\n", None)
    assert time.monotonic() - start < WAIT


def test_endless_output_is_cut():
    outcome = probe(["/bin/sh", "-c", "exec yes"], timeout=0.5)
    assert outcome.failure == "does not end within 0.5 s"
    assert len(outcome.output) == probing.KEPT_OUTPUT


def test_a_program_that_the_system_can_not_start_is_a_failure(tmp_path: Path):
    replace(tmp_path, "odd", "")
    (tmp_path / "odd").write_bytes(b"\x7fELF")
    assert probe([str(tmp_path / "odd")]).failure == "can't be started (Exec format error)"
