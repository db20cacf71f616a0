"""Starts a sandbox, to see whether it holds. Standard library only."""

import json
from pathlib import Path

from ipybox.sandbox.findings import Finding
from ipybox.sandbox.preflight import require_sandbox, requirements
from ipybox.sandbox.transient import BUSY, transient_cause
from ipybox.support.probe import probe
from ipybox.support.scratch import ScratchDirectory

#: Seconds in which a sandbox must start and end.
SANDBOX_TIMEOUT = 20.0

#: Runs in the sandbox: it may write here, but not next to it.
TRIAL = "echo ran > inside; echo escaped > ../outside; true"


def try_sandbox() -> list[Finding]:
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
        problem, remedy = f"srt can't start a sandbox: it {outcome.failure}", "fix the other findings first"
    elif escaped or not ran:
        problem = "srt lets code write outside the workspace" if escaped else "srt does not run the command"
        remedy = f"put the srt of npm's @anthropic-ai/sandbox-runtime on PATH instead of {srt}"
    else:
        return [Finding("sandbox", "starts and confines code")]
    return [Finding("sandbox", str(srt), problem, remedy)]


def _settings(workspace: Path) -> dict[str, object]:
    """Returns settings like ipybox's default: only the workspace is writable, and there is no network."""
    return {
        "filesystem": {"denyRead": ["~/.ssh"], "allowWrite": [str(workspace)], "denyWrite": []},
        "network": {"allowedDomains": [], "deniedDomains": []},
    }
