"""Session notices about what keeps a plugin from working.

This module and its imports need only the standard library: the plugin's hook runs it before anything is installed.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ipybox.docker.engine import default_image, examine_engine
from ipybox.errors import SandboxError
from ipybox.sandbox.findings import Finding, Install, environment_findings, together
from ipybox.sandbox.preflight import diagnose, requirements
from ipybox.sandbox.settings import PROFILES, SandboxSettings, sandbox_settings, untrusted_path
from ipybox.support.printable import printable
from ipybox.workspace.trust import SANDBOX_CONFIG, TrustStore, policy_notice, read_untrusted


@dataclass(frozen=True, kw_only=True)
class PluginWorkspace:
    """The workspace of a plugin's session, and the user's settings.

    Attributes:
        path: The workspace.
        profile: The sandbox profile.
        policy: The rules file for tool calls, if set.
        program: The command that runs ipybox for this plugin, for example for `ipybox trust`.
    """

    path: Path
    profile: str = "default"
    policy: Path | None = None
    program: Sequence[str] = ()

    def sandbox_settings(self) -> SandboxSettings:
        """Returns the settings of the plugin's sandbox.

        Raises:
            SandboxError: If the workspace's `sandbox-config.json` is invalid.
        """
        profile = self.profile if self.profile in PROFILES else "default"  # the server reports it at its start
        return sandbox_settings(TrustStore(self.path), profile=profile, discover=True, program=self.program)

    def policy_notices(self) -> list[str]:
        """Returns notices about the rules for tool calls."""
        if self.policy is None or untrusted_path(self.policy, PROFILES["default"], self.path) is None:
            return []
        store = TrustStore(self.path)
        with suppress(OSError):  # calls report it
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
        """Returns a notice for the person, which the model also passes on."""
        return cls(printable(text), printable(f"Tell the user: {text}"))


def session_notice(
    mode: Literal["plain", "sandbox", "docker"], plugin: str, workspace: PluginWorkspace | None = None
) -> Iterator[SessionNotice]:
    """Yields a notice for each untrusted file of the workspace, then two with the problem and its remedy, if any.

    Checking files and missing programs takes milliseconds; existing programs take as long as they need to respond. So a
    caller with a time limit uses the notices that arrive in time.
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
    """Returns findings on what a plugin needs; runs the programs only if none is missing."""
    if mode == "docker":
        # The client's version does not matter if the daemon responds, and asking for it takes as long again.
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
