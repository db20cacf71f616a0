"""What several modules try."""

import os
from dataclasses import dataclass
from pathlib import Path

from tests.security import file_attacks
from tests.security.conftest import Row
from tests.security.kernels import Kernel, Place, Probe, held, state


@dataclass(frozen=True)
class Kernels:
    """The kernels of this module; `configured` and `bare` are in the sandbox, with a home in common."""

    plain: Kernel
    configured: Kernel
    configured_place: Place
    bare: Kernel
    bare_place: Place


#: Like that of this machine's SSH server; each process of the tests has its own.
HOST_KEY = Path(f"/etc/ssh/ssh_host_ipybox-probe-{os.getpid()}_key")

#: Names that mean something to programs of the host, where they are not there yet.
ABSENT = (
    *(
        ".git/config",
        ".git/hooks/pre-commit",
        ".git/HEAD",
        ".mcp.json",
        ".claude/settings.json",
        ".claude/commands/x.md",
    ),
    *(".vscode/tasks.json", ".idea/workspace.xml", ".env", ".gitmodules", ".gitconfig", ".ripgreprc"),
    *(
        ".bashrc",
        ".bash_profile",
        ".profile",
        ".zshrc",
        ".zprofile",
        ".ipybox/new",
        ".devcontainer.json",
    ),
    *(".devcontainer/devcontainer.json", ".cursor/rules/x.mdc", ".gemini/settings.json", ".codex/config.toml"),
    *(
        ".husky/pre-commit",
        ".opencode/plugin/x.js",
        ".kiro/settings/mcp.json",
        ".roo/mcp.json",
        ".aider.conf.yml",
    ),
)

MAKING = [
    *((Probe(f"making {name}", file_attacks.write, (f"{{workspace}}/{name}",)), name) for name in ABSENT),
    *(
        (Probe(f"{how} {name}", attack, (f"{{workspace}}/{name}", "{scratch}")), name)
        for how, attack in (
            ("putting a link in place of", file_attacks.make_a_link),
            ("putting a hard link in place of", file_attacks.write_through_a_hard_link_made_in_its_place),
            ("renaming a link to", file_attacks.replace_by_a_link),
        )
        for name in (
            ".git",
            ".mcp.json",
            ".claude",
            ".env",
            ".bashrc",
            ".gitmodules",
        )
    ),
    (Probe("making .git a file that leads elsewhere", file_attacks.write, ("{workspace}/.git",)), ".git"),
]


async def try_to_write(
    probe: Probe, target: str, plain: tuple[Kernel, Place], sandboxed: tuple[Kernel, Place], table: list[Row]
) -> None:
    """Tries it in both; `target` is what shows it, relative to the workspace or, if it is there, to the place."""
    before = [state(place.root / target) for _, place in (plain, sandboxed)]

    outside = await probe.run(*plain)
    assert state(plain[1].root / target) != before[0], f"the attack does not work where nothing stops it: {outside}"
    within = await probe.run(*sandboxed)

    assert state(sandboxed[1].root / target) == before[1], f"{target} was changed: {within}"
    held(table, "Writing", probe, "written", within)
