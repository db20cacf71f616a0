"""The SessionStart hook's output: what keeps a plugin from working, for the person and for the model.

The hook runs before anything is installed, so this module and its imports need only the standard library.
https://code.claude.com/docs/en/hooks
"""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal, NoReturn, cast

from ipybox.docker.engine import default_image, examine_engine
from ipybox.errors import SandboxError
from ipybox.sandbox.findings import Finding, Install, together
from ipybox.sandbox.preflight import diagnose, requirements
from ipybox.sandbox.settings import PROFILES, sandbox_settings, untrusted_path
from ipybox.support.printable import printable
from ipybox.support.probe import end_all
from ipybox.support.way_in import use_command_line
from ipybox.workspace.trust import SANDBOX_CONFIG, TrustStore, policy_notice, read_untrusted

from .environment import PACKAGE, Environment
from .project_settings import read_settings

Mode = Literal["plain", "sandbox", "docker"]

NAMES: dict[str, str] = {"plain": "codeact-default", "sandbox": "codeact-sandbox", "docker": "codeact-docker"}

#: Seconds to wait for programs; the hook may take one second, in which Python starts twice.
TIMEOUT = 0.45

#: Advice if several of the plugins are enabled.
CHOOSE = "They provide the same tools and skill, so disable all but one with /plugin"


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


def print_notice(mode: Mode, workspace: Path) -> None:
    """Prints the notices as the hook's output, or nothing without problems, within a second."""
    use_command_line()
    name = NAMES[mode]
    lines = [*map(SessionNotice.to_pass_on, _several(name, workspace))]
    environment = Environment.here()
    if mode != "docker" and not environment.ready:
        installs = f"{name} is installing its packages. This takes a minute or more, but happens only once."
        model = (
            f"{installs} Keep working: its tools wait until it is done. If they are missing, call WaitForMcpServers, "
            "or search for ipybox with ToolSearch. You don't need a new session."
        )
        lines.append(SessionNotice(f"{installs} You can keep working: its tools wait until it is done.", model))

    def too_long(_: int, __: FrameType | None) -> NoReturn:
        end_all()
        _print(lines)
        os._exit(0)  # threads may still wait for programs; calls report errors

    signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, TIMEOUT)
    if image := os.environ.get("CLAUDE_PLUGIN_OPTION_IMAGE"):
        os.environ["IPYBOX_IMAGE"] = image
    profile = os.environ.get("CLAUDE_PLUGIN_OPTION_SANDBOX_PROFILE", "")
    rules = os.environ.get("CLAUDE_PLUGIN_OPTION_APPROVE", "auto")
    policy = None if rules in ("", "auto", "writes", "ask") else workspace / rules
    # In Docker mode, there is no environment on the host.
    program = ["uvx", "--from", str(PACKAGE), "ipybox"] if mode == "docker" else [str(environment.command)]
    notices = session_notice(mode, name, workspace.resolve(), profile=profile, policy=policy, program=program)
    for place, line in enumerate(notices):
        lines.insert(place, line)
    signal.setitimer(signal.ITIMER_REAL, 0)
    _print(lines)


def _print(lines: list[SessionNotice]) -> None:
    if not lines:
        return
    context = {"hookEventName": "SessionStart", "additionalContext": "\n".join(line.model for line in lines)}
    person = "\n".join(line.person for line in lines)
    print(json.dumps({"systemMessage": person, "hookSpecificOutput": context}), flush=True)


def _several(name: str, workspace: Path) -> Iterator[str]:
    """Yields a line if several of the plugins are enabled; only the first of them does."""
    home = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path(os.environ.get("HOME", "/")) / ".claude")
    enabled: dict[str, bool] = {}
    for file in (home / "settings.json", *(workspace / ".claude" / f"settings{kind}.json" for kind in ("", ".local"))):
        with suppress(OSError, ValueError, RecursionError):
            settings: object = json.loads(read_settings(file))
            plugins: object = (
                cast("dict[str, object]", settings).get("enabledPlugins") if isinstance(settings, dict) else None
            )
            if isinstance(plugins, dict):
                enabled |= cast("dict[str, bool]", plugins)
    here = sorted({plugin.partition("@")[0] for plugin, on in enabled.items() if on} & {*NAMES.values()})
    if len(here) > 1 and here[0] == name:
        yield f"The plugins {' and '.join(here)} are all enabled. {CHOOSE}."


def session_notice(
    mode: Mode,
    plugin: str,
    workspace: Path,
    *,
    profile: str = "default",
    policy: Path | None = None,
    program: Sequence[str] = (),
) -> Iterator[SessionNotice]:
    """Yields a notice for each untrusted file of the workspace, then two with the problem and its remedy, if any.

    Checking files and missing programs takes milliseconds; existing programs take as long as they need to respond. So a
    caller with a time limit uses the notices that arrive in time.

    Args:
        mode: Where code runs.
        plugin: The name of the plugin.
        workspace: The workspace, without links in its path.
        profile: The sandbox profile.
        policy: The rules file for tool calls, if set.
        program: The command that runs ipybox for this plugin, for example for `ipybox trust`.
    """
    store, settings, wrong = TrustStore(workspace), PROFILES["default"], list[Finding]()
    if mode == "sandbox":
        try:
            known = profile if profile in PROFILES else "default"  # the server reports others at its start
            settings = sandbox_settings(store, profile=known, discover=True, program=program)
        except SandboxError as exc:
            file = workspace / SANDBOX_CONFIG
            wrong.append(Finding("settings", str(file), str(exc), f"correct {file}"))
    yield from map(SessionNotice.to_pass_on, settings.notices)
    if policy is not None and untrusted_path(policy, PROFILES["default"], workspace) is not None:
        with suppress(OSError):  # calls report it
            if not store.trusts(policy, read_untrusted(policy, workspace)):
                yield SessionNotice.to_pass_on(policy_notice(policy, store, program))
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


def _needed(mode: Mode, weaker_nested: bool) -> list[Finding]:
    """Returns findings on what a plugin needs; runs the programs only if none is missing."""
    if mode == "docker":
        # The client's version does not matter if the daemon responds, and asking for it takes as long again.
        return examine_engine(default_image())[0]
    if mode == "plain":
        return []
    quick = requirements()
    return quick if any(finding.problem for finding in quick) else diagnose(weaker_nested=weaker_nested)


def _enumerated(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
