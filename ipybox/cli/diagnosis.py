"""What keeps ipybox from working on this machine, and what to do about it.

Checks run at the same time, each with a bound of its own. What is asked for is tried and not inferred: with `sandbox`,
`problems` starts a sandbox and looks whether it holds.

Standard library only, with all that it imports: a plugin's hook runs it before anything is installed.
"""

import json
import platform
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Literal

from ipybox.docker.engine import DOCKER, engine_findings
from ipybox.docker.options import default_image
from ipybox.sandbox.findings import INSTALLERS, Finding, Install, together
from ipybox.sandbox.preflight import diagnose, require_sandbox, requirements
from ipybox.sandbox.programs import Program, examine
from ipybox.sandbox.settings import PROFILES, SandboxSettings
from ipybox.sandbox.transient import BUSY, transient_cause
from ipybox.sandbox.workspace_settings import sandbox_settings, untrusted_path
from ipybox.support.errors import SandboxError
from ipybox.support.printable import printable
from ipybox.support.probe import probe
from ipybox.support.scratch import ScratchDirectory
from ipybox.workspace.trust import SANDBOX_CONFIG, TrustStore, policy_notice, read_untrusted

#: The modes that can be checked; "other" has programs that people often use in addition.
Mode = Literal["plain", "sandbox", "docker", "other"]
MODES: tuple[Mode, ...] = ("plain", "sandbox", "docker", "other")

MINIMUM_PYTHON = (3, 11)

#: Modules of Python with which an environment can be made, and a plugin be started without uv.
ENVIRONMENT_MODULES = ("venv", "ensurepip")

#: Seconds in which a sandbox must start and end.
SANDBOX_TIMEOUT = 20.0

INSTALL_UV = Install("uv", ("pip install",), "install it with {}, it starts the Claude Code plugins")
UV = Program("uv", "uv", None, remedy=INSTALL_UV)
CLAUDE = Program(
    "claude",
    "claude",
    None,
    remedy=Install("@anthropic-ai/claude-code", ("npm install -g",), "install it with {}, for the plugins"),
)

#: Runs in the sandbox: it may write here, but not next to it.
TRIAL = "echo ran > inside; echo escaped > ../outside; true"


@dataclass(frozen=True)
class Check:
    """Something to find out: the mode that needs it, and what finds it out."""

    mode: Mode
    run: Callable[[], list[Finding]]


def problems(*, sandbox: bool = False, docker: bool = False) -> list[str]:
    """Returns what keeps the asked-for modes from working, one line each with what to do; empty if all is well."""
    found = examine_modes(asked_modes(sandbox, docker), try_sandbox=sandbox)
    return [str(finding) for findings in found.values() for finding in findings if finding.problem is not None]


@dataclass(frozen=True, kw_only=True)
class PluginWorkspace:
    """The workspace of a plugin's session, and what the user has set.

    Attributes:
        path: The workspace.
        profile: The profile of the sandbox.
        policy: The file with rules for tool calls, if there is one.
        program: What runs `ipybox trust` for this plugin.
    """

    path: Path
    profile: str = "default"
    policy: Path | None = None
    program: Sequence[str] = ()

    def sandbox_settings(self) -> SandboxSettings:
        """Returns the settings of the plugin's sandbox.

        Raises:
            SandboxError: If `sandbox-config.json` of the workspace is wrong.
        """
        profile = self.profile if self.profile in PROFILES else "default"  # the server's start says what is wrong
        return sandbox_settings(TrustStore(self.path), profile=profile, discover=True, program=self.program)

    def policy_notices(self) -> list[str]:
        """Returns what the session should know of the rules for tool calls."""
        if self.policy is None or untrusted_path(self.policy, PROFILES["default"], self.path) is None:
            return []
        store = TrustStore(self.path)
        with suppress(OSError):  # calls say what is wrong
            if not store.trusts(self.policy, read_untrusted(self.policy, self.path)):
                return [policy_notice(self.policy, store, self.program)]
        return []


@dataclass(frozen=True)
class SessionNotice:
    """A line at the start of a plugin's session.

    Attributes:
        person: The text that the person sees.
        model: The text that the model gets.
    """

    person: str
    model: str

    @classmethod
    def to_pass_on(cls, text: str) -> "SessionNotice":
        """Returns a notice for the person, which the model only passes on."""
        return cls(printable(text), printable(f"Tell the user: {text}"))


def session_notice(
    mode: Literal["plain", "sandbox", "docker"], plugin: str, workspace: PluginWorkspace | None = None
) -> Iterator[SessionNotice]:
    """Yields notices for a plugin's session: one for each file of the workspace that is not trusted, then two with the
    problem and its remedy; nothing without problems.

    Checking the files takes milliseconds, and so does a missing program; working programs take as long as they need to
    answer. So a caller with a time limit uses the notices before it.

    Args:
        mode: How the plugin runs code.
        plugin: The plugin's name.
        workspace: The workspace.
    """
    settings = PROFILES["default"]
    wrong: list[Finding] = []
    if workspace is not None:
        try:
            settings = workspace.sandbox_settings() if mode == "sandbox" else settings
        except SandboxError as exc:
            file = workspace.path / SANDBOX_CONFIG
            wrong.append(Finding("settings", str(file), str(exc), f"correct {file}"))
        for notice in (*settings.notices, *workspace.policy_notices()):
            yield SessionNotice.to_pass_on(notice)
    wrong += [finding for finding in _needed(mode, settings.weaker_nested_sandbox) if finding.problem is not None]
    if wrong:
        yield from _complaint(wrong, plugin)


def _complaint(wrong: Sequence[Finding], plugin: str) -> Sequence[SessionNotice]:
    missing = [finding.what for finding in wrong if finding.found is None]
    reasons = [f"{_enumerated(missing)} {'is' if len(missing) == 1 else 'are'} missing"] if missing else []
    reasons += [finding.problem for finding in wrong if finding.problem is not None and finding.found is not None]
    remedies = [finding.remedy for finding in wrong if finding.remedy is not None]
    commands = together(remedy for remedy in remedies if isinstance(remedy, Install))
    words = dict.fromkeys(remedy for remedy in remedies if isinstance(remedy, str))
    todo = "; ".join([*(f"run {command}" for command in commands), *words])
    problem = printable(f"{plugin} can't run code here: {'; '.join(reasons)}.")
    person = f"What to do: {todo}. Then ask Claude to try again. If it still fails, reconnect {plugin} with /mcp."
    model = (
        f"Tell the user what to do: {todo}. Then call the tool again. If it still fails, ask the user to reconnect "
        f"{plugin} with /mcp: you can't."
    )
    return SessionNotice(problem, problem), SessionNotice(printable(person), printable(model))


def asked_modes(sandbox: bool, docker: bool) -> list[Mode]:
    """Returns the modes that are asked for: the plain one, which needs Python only, and those that are named."""
    modes: list[Mode] = ["plain"]
    if sandbox:
        modes.append("sandbox")
    if docker:
        modes.append("docker")
    return modes


def examine_modes(modes: Collection[Mode], *, try_sandbox: bool) -> dict[Mode, list[Finding]]:
    """Returns what the checks of these modes find, in the order of the checks."""
    checks = [
        Check("plain", _python),
        Check("sandbox", diagnose),
        *([Check("sandbox", _sandbox)] if try_sandbox else []),
        Check("docker", _docker),
        Check("other", lambda: [examine(UV)]),
        Check("other", _environments),
        Check("other", lambda: [examine(CLAUDE)]),
    ]
    wanted = [check for check in checks if check.mode in modes]
    found: dict[Mode, list[Finding]] = {}
    with ThreadPoolExecutor(len(wanted)) as pool:
        running = [pool.submit(check.run) for check in wanted]
        for check, findings in zip(wanted, running, strict=True):
            found.setdefault(check.mode, []).extend(findings.result())
    return found


def _needed(mode: Literal["plain", "sandbox", "docker"], weaker_nested: bool) -> list[Finding]:
    """Returns what a plugin needs: of the programs only whether they are there, as long as one is not."""
    if mode == "docker":
        # What the client is does not matter if the daemon answers, and asking it takes as long again.
        return engine_findings(default_image())
    findings = [*_python(), *_environments()]
    if mode == "plain":
        return findings
    quick = requirements()
    if any(finding.problem for finding in quick):
        return [*findings, *quick]
    return [*findings, *diagnose(weaker_nested=weaker_nested)]


def _enumerated(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _python() -> list[Finding]:
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info >= MINIMUM_PYTHON:
        return [Finding("python", found)]
    minimum = ".".join(str(number) for number in MINIMUM_PYTHON)
    return [Finding("python", found, f"Python is older than {minimum}", f"install Python {minimum} or later")]


def _environments() -> list[Finding]:
    """Returns whether the plugins can make their environment where there is no uv."""
    absent = [name for name in ENVIRONMENT_MODULES if find_spec(name) is None]
    if which("uv") is not None or not absent:
        return []
    # Debian has them in a package of its own, and a pip that refuses to install into its Python.
    debian = which("apt-get") is not None
    remedy = Install("python3-venv", (INSTALLERS["apt-get"],), as_root=True) if debian else INSTALL_UV
    problem = f"uv not found, and this Python can't make environments without {' and '.join(absent)}"
    return [Finding("environments", sys.executable, problem, remedy)]


def _sandbox() -> list[Finding]:
    """Starts a sandbox, and returns whether it lets code write where it may and nowhere else."""
    if any(finding.problem for finding in requirements()):
        return []
    srt = require_sandbox()
    with ScratchDirectory(sockets=True) as scratch:
        inside, outside = scratch.path / "workspace" / "inside", scratch.path / "outside"
        inside.parent.mkdir()
        settings = scratch.path / "settings.json"
        settings.write_text(json.dumps(_settings(inside.parent)))
        command = [str(srt), "--settings", str(settings), "bash", "-c", TRIAL]
        # Sockets that srt names by its process id are no one else's there.
        outcome = probe(command, timeout=SANDBOX_TIMEOUT, cwd=inside.parent, env={"TMPDIR": str(scratch.path)})
        ran, escaped = inside.exists(), outside.exists()
    cause = BUSY if outcome.timed_out else transient_cause(outcome.failure or "")
    if cause is not None:
        problem, remedy = f"srt {outcome.failure}, {cause}", "try again"
    elif outcome.failure:
        problem, remedy = f"srt can't start a sandbox, it {outcome.failure}", "see what else is wrong here"
    elif escaped or not ran:
        problem = "srt lets code write outside of the workspace" if escaped else "srt does not run the command"
        remedy = f"put the srt of npm's @anthropic-ai/sandbox-runtime on PATH instead of {srt}"
    else:
        return [Finding("sandbox", "starts, and holds")]
    return [Finding("sandbox", str(srt), problem, remedy)]


def _settings(workspace: Path) -> dict[str, object]:
    """Returns settings like ipybox's default: only the workspace is writable, and there is no network."""
    return {
        "filesystem": {"denyRead": ["~/.ssh"], "allowWrite": [str(workspace)], "denyWrite": []},
        "network": {"allowedDomains": [], "deniedDomains": []},
    }


def _docker() -> list[Finding]:
    client = examine(DOCKER)
    if client.problem is not None:
        return [client]
    return [client, *engine_findings(default_image())]
