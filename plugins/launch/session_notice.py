"""What keeps a plugin from working, as the notices of a session.

Standard library only, with all that it imports: the plugin's hook runs it before anything is installed.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ipybox.docker.engine import examine_engine
from ipybox.docker.options import default_image
from ipybox.errors import SandboxError
from ipybox.sandbox.findings import Finding, Install, environment_findings, together
from ipybox.sandbox.preflight import diagnose, requirements
from ipybox.sandbox.settings import PROFILES, SandboxSettings
from ipybox.sandbox.workspace_settings import sandbox_settings, untrusted_path
from ipybox.support.printable import printable
from ipybox.workspace.trust import SANDBOX_CONFIG, TrustStore, policy_notice, read_untrusted


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


def _needed(mode: Literal["plain", "sandbox", "docker"], weaker_nested: bool) -> list[Finding]:
    """Returns what a plugin needs: of the programs only whether they are there, as long as one is not."""
    if mode == "docker":
        # What the client is does not matter if the daemon answers, and asking it takes as long again.
        return examine_engine(default_image())[0]
    findings = environment_findings()
    if mode == "plain":
        return findings
    quick = requirements()
    if any(finding.problem for finding in quick):
        return [*findings, *quick]
    return [*findings, *diagnose(weaker_nested=weaker_nested)]


def _enumerated(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
