import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ipybox.errors import SandboxError
from ipybox.sandbox.findings import Finding, Install, together
from ipybox.sandbox.preflight import diagnose, require_sandbox
from ipybox.support import probe as probing
from ipybox.support.probe import probe

pytestmark = pytest.mark.sandbox

NEEDED = ("srt", "node", "bwrap", "socat", "rg", "bash", "which")


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


def test_srt_is_returned_when_everything_is_there(directory: Path):
    assert require_sandbox(str(directory)) == directory / "srt"


def test_path_of_this_process_is_searched_by_default(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(directory.parent)
    monkeypatch.setenv("PATH", "bin")
    assert require_sandbox() == directory / "srt"


def test_everything_that_is_missing_is_listed_at_once(tmp_path: Path):
    lines = refusal(tmp_path).splitlines()
    assert lines[0] == "the sandbox can't start, so no code ran:"
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
        pytest.param("echo 1.0.0", "srt does not report its version, so it is probably too old", id="untold"),
        pytest.param("echo hello", "srt does not report its version, so it is probably too old", id="none"),
        pytest.param("echo no config >&2; exit 3", "srt is broken: it exited with 3: no config", id="failing"),
        pytest.param("exec sleep 1000", "srt did not finish within 0.3 s; the machine may be busy", id="hanging"),
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
    assert line.startswith("  srt is incomplete: ")
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
        start = time.process_time()
        require_sandbox()
        durations.append(time.process_time() - start)
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
        pytest.param("rg", "echo >&2 no pcre; exit 127", "rg is broken: it exited with 127: no pcre", id="failing"),
        pytest.param("socat", "kill -SEGV $$", "socat is broken: it was killed by signal 11: install", id="crashing"),
        pytest.param("bwrap", "exit 1", "bwrap is broken: it exited with 1: install", id="silent"),
        pytest.param("bash", "/bin/sleep 1000", "bash did not finish within 1 s; the machine may be busy", id="slow"),
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
    assert line.startswith("srt is broken: it exited with 1: Error: no module commander: install it with `npm")


def test_diagnosis_of_an_empty_machine_is_that_of_the_quick_check(tmp_path: Path):
    lines = problems(diagnose(str(tmp_path)))
    assert refusal(tmp_path).splitlines()[1:] == [f"  {line}" for line in lines]


def test_a_system_without_a_sandbox_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "freebsd14")

    (problem,) = problems(diagnose())

    assert problem.startswith("the sandbox needs Linux or macOS: ")


def test_a_machine_without_a_filter_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="riscv64"))

    assert any(problem.startswith("srt can't block unix sockets on riscv64: ") for problem in problems(diagnose()))


def test_packages_are_installed_by_one_command_and_once():
    bubblewrap, socat = (Install(package, ("apt-get install",)) for package in ("bubblewrap", "socat"))

    (command,) = together([bubblewrap, socat, bubblewrap])

    assert command.strip("`").endswith("apt-get install bubblewrap socat")
