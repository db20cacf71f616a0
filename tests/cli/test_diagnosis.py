"""What keeps a machine from running code, for people and for the session of a plugin."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import pytest

from ipybox.cli.doctor import examine_modes
from ipybox.workspace.trust import TrustStore
from plugins.launch.notice import session_notice
from tests.sandbox.test_namespaces import FORBIDDEN_BWRAP
from tests.sandbox.test_preflight import NEEDED, package, replace
from tests.servers import ROOT, WAIT

#: The PATH of the tests themselves.
PATH = os.environ["PATH"]

SANDBOX = (*NEEDED, "sh", "env")

#: A workspace without settings.
EMPTY = Path("/")

#: The end of each notice.
AGAIN = ". Then ask Claude to try again. If it still fails, reconnect codeact-x with /mcp."

INSTALL_SRT = "run `npm install -g @anthropic-ai/sandbox-runtime`"


def path_in(place: Path, patch: pytest.MonkeyPatch) -> Path:
    """Makes an empty directory that is PATH."""
    directory = place / "bin"
    directory.mkdir()
    patch.setenv("PATH", str(directory))
    return directory


#: What a docker does whose daemon answers.
DAEMON = """echo '[1, [], null, "28.2.1"]'"""


def fill(directory: Path) -> Path:
    """Puts all that the sandbox needs into a directory."""
    for name in SANDBOX:
        real = shutil.which(name, path=PATH)
        assert real is not None, f"these tests need {name}"
        (directory / name).symlink_to(os.path.abspath(real))
    return directory


def docker_program(directory: Path, answer: str) -> None:
    """Puts a docker command on PATH that does this when it is asked for the daemon."""
    replace(
        directory, "docker", f"case $1 in --version) echo Docker version 28.2.2, build e6534b4 ;; *) {answer} ;; esac"
    )


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is PATH, and empty."""
    return path_in(tmp_path, monkeypatch)


@pytest.fixture
def sandbox(directory: Path) -> Path:
    """A directory that is PATH, with all that the sandbox needs."""
    return fill(directory)


def notice(mode: Literal["plain", "sandbox", "docker"], workspace: Path = EMPTY) -> tuple[str, str]:
    """Returns what is wrong, and what to do, of a notice."""
    wrong, todo = session_notice(mode, "codeact-x", workspace)
    assert wrong.model == wrong.person
    assert wrong.person.startswith("codeact-x can't run code here: ")
    assert todo.person.startswith("What to do: ")
    assert todo.person.endswith(AGAIN)
    assert todo.model.startswith(
        f"Tell the user what to do: {todo.person[12 : -len(AGAIN)]}. Then call the tool again."
    )
    return wrong.person.partition(": ")[2], todo.person.partition(": ")[2].removesuffix(AGAIN)


def test_there_are_no_problems_where_all_is_well(sandbox: Path):
    docker_program(sandbox, DAEMON)
    found = asyncio.run(examine_modes(Path()))
    assert [finding for mode in ("plain", "sandbox", "docker") for finding in found[mode] if finding.problem] == []


def test_problems_are_one_line_each(directory: Path):
    found = asyncio.run(examine_modes(Path()))
    lines = {mode: [str(finding) for finding in examined if finding.problem] for mode, examined in found.items()}
    assert lines["plain"] == []
    assert [line.split()[0] for line in lines["sandbox"]] == list(NEEDED)
    assert [line.split()[0] for line in lines["docker"]] == ["docker"]
    assert not any("\n" in line for each in lines.values() for line in each)


def test_it_runs_before_anything_is_installed(tmp_path: Path):
    code = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from ipybox.docker.request import container_options
from ipybox.sandbox.preflight import diagnose
from plugins.launch.notice import session_notice
print(len([finding for finding in diagnose() if finding.problem]))
for line in session_notice("sandbox", "codeact-sandbox", Path("/")): print(line.model)
"""
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", code],
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count, wrong, _ = done.stdout.splitlines()
    assert int(count) == len(NEEDED)
    assert wrong.startswith("codeact-sandbox can't run code here: srt, node, bubblewrap, ")


def test_there_is_no_notice_where_all_is_well(sandbox: Path):
    docker_program(sandbox, DAEMON)
    for mode in ("plain", "sandbox", "docker"):
        start = time.monotonic()
        assert [*session_notice(mode, "codeact-x", EMPTY)] == []
        assert time.monotonic() - start < WAIT / 10


def test_all_that_is_missing_is_in_one_notice_with_one_command_for_each_installer(sandbox: Path):
    for name in ("srt", "bwrap", "socat"):
        (sandbox / name).unlink()
    replace(sandbox, "apt-get", "exit 1")

    assert notice("sandbox") == (
        "srt, bubblewrap and socat are missing.",
        f"{INSTALL_SRT}; run `apt-get install bubblewrap socat` as root",
    )


def test_installers_that_may_be_there_are_alternatives(sandbox: Path):
    for name in ("socat", "rg", "node"):
        (sandbox / name).unlink()

    assert notice("sandbox") == (
        "node, socat and ripgrep are missing.",
        "run `apt-get install socat ripgrep` or `dnf install socat ripgrep` or `pacman -S socat ripgrep`; "
        "install Node.js 20.11 or later",
    )


def test_no_program_is_started_as_long_as_one_is_missing(sandbox: Path):
    started = sandbox.parent / "started"
    for name in NEEDED[1:]:
        replace(sandbox, name, f"echo {name} >> {started}")
    (sandbox / "srt").unlink()

    assert notice("sandbox") == ("srt is missing.", INSTALL_SRT)
    assert not started.exists()


def test_what_does_not_work_has_its_own_words(sandbox: Path):
    package(sandbox, '{"version": "0.0.40"}')
    (sandbox / "rg").unlink()
    replace(sandbox, "brew", "exit 1")
    replace(sandbox, "apk", "exit 1")

    assert notice("sandbox") == (
        "ripgrep is missing; srt 0.0.40 is older than 0.0.78.",
        "run `npm install -g @anthropic-ai/sandbox-runtime@latest`; run `apk add ripgrep` as root",
    )


def test_a_machine_that_forbids_namespaces_is_told(sandbox: Path):
    replace(sandbox, "bwrap", FORBIDDEN_BWRAP)

    wrong, todo = notice("sandbox")

    assert "namespaces" in wrong
    assert todo


def test_a_program_can_not_add_lines_to_a_notice(sandbox: Path):
    replace(sandbox, "rg", r"printf 'Error: \033[31mno\r\n\nDo as I say\n' >&2; exit 1")

    wrong, _ = notice("sandbox")

    assert wrong == "rg is broken: it exited with 1: Error: \\u001b[31mno."


def test_settings_that_the_sandbox_would_refuse_are_told(sandbox: Path, tmp_path: Path):
    config = tmp_path / "sandbox-config.json"
    config.write_text('{"netwrok": {}}')
    TrustStore(tmp_path).trust(config, config.read_bytes(), "default")
    known = "'enableWeakerNestedSandbox', 'filesystem', 'network'"
    remedy = "correct or remove it, even if srt accepts it"

    wrong, todo = notice("sandbox", tmp_path)

    assert wrong == f"the sandbox settings {config} contain an unknown key 'netwrok' (known: {known}): {remedy}."
    assert todo == f"correct {config}"


def test_files_that_are_not_trusted_are_told_until_they_are(sandbox: Path, tmp_path: Path):
    settings, policy = tmp_path / "sandbox-config.json", tmp_path / "ipybox.yaml"
    settings.write_text('{"filesystem": {"allowWrite": ["/"]}}')
    policy.write_text("default: allow")
    options: dict[str, Any] = {"profile": "workspace", "policy": policy, "program": ["/env/bin/ipybox"]}

    about_settings, about_policy = session_notice("sandbox", "codeact-x", tmp_path, **options)
    assert about_settings.model == f"Tell the user: {about_settings.person}"
    assert about_settings.person.startswith("The workspace's sandbox-config.json is not trusted: ")
    assert f"`/env/bin/ipybox trust --workspace={tmp_path} --sandbox-profile=workspace`" in about_settings.person
    assert about_policy.person.startswith("The workspace's ipybox.yaml is not trusted: ")
    assert f"`/env/bin/ipybox trust --workspace={tmp_path}`" in about_policy.person

    TrustStore(tmp_path).trust(settings, settings.read_bytes(), "workspace")
    assert [*session_notice("sandbox", "codeact-x", tmp_path, **options)] == [about_policy]
    TrustStore(tmp_path).trust(policy, policy.read_bytes())
    assert [*session_notice("sandbox", "codeact-x", tmp_path, **options)] == []


def test_a_docker_that_is_missing_or_not_running_is_told(directory: Path):
    assert notice("docker") == ("docker is missing.", "install Docker Engine or Docker Desktop")

    docker_program(directory, "echo 'Cannot connect' >&2; exit 1")
    assert notice("docker") == (
        "can't reach the Docker daemon (Cannot connect).",
        "start Docker Desktop, or run `systemctl start docker` as root",
    )
