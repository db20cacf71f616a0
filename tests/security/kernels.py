"""Kernels that attacks run in, the places that they find there, and what the host sees of their success.

Each attack is a function of a module that is sent to the kernel. In a plain kernel it gets a place that is made for it
alone, so it may break that. In the sandbox all attacks of a test module share one, which none of them may break.
"""

import json
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
from jupyter_core.paths import jupyter_runtime_dir

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.support.state import state_dir
from tests.security import attack_tools
from tests.security.conftest import Row

#: What an attack returns counts by its content; see the module that it is from.
Attack: TypeAlias = Callable[..., str]

ROOT = os.geteuid() == 0

#: Seconds that an attack may take.
TIMEOUT = 40

#: Files with credentials in a home: at least one for each entry of the default settings.
CREDENTIALS = (
    *(".ssh/id_ed25519", ".ssh/config", ".gnupg/private-keys-v1.d/x.key", ".password-store/x.gpg"),
    *(".local/share/keyrings/login.keyring", ".aws/credentials", ".aws/sso/cache/x.json", ".azure/accessTokens.json"),
    *(".config/gcloud/application_default_credentials.json", ".boto", ".s3cfg", ".oci/config"),
    *(".config/rclone/rclone.conf", ".kube/config", ".docker/config.json", ".config/containers/auth.json"),
    *(".terraform.d/credentials.tfrc.json", ".netrc", ".git-credentials", ".config/git/credentials"),
    *(
        "dotfiles/gh/hosts.yml",
        ".config/gh/hosts.yml",
        "dotfiles/token",
        ".config/glab-cli/config.yml",
        ".npmrc",
        ".yarnrc.yml",
        ".pypirc",
        ".pip/pip.conf",
    ),
    ".local/state/ipybox/seal.key",
    *(".config/pip/pip.conf", ".config/uv/uv.toml", ".gem/credentials", ".cargo/credentials"),
    *(".cargo/credentials.toml", ".m2/settings.xml", ".gradle/gradle.properties", ".claude/.credentials.json"),
    *(".claude.json", ".config/claude/settings.json", ".codex/auth.json", ".gemini/oauth_creds.json"),
    *(".cursor/mcp.json", ".copilot/mcp-config.json", ".qwen/settings.json", ".config/zed/settings.json"),
    *(".config/Claude/claude_desktop_config.json", ".config/opencode/opencode.json", ".config/Code/User/mcp.json"),
    ".config/Code/User/settings.json",
    *(".cache/huggingface/token", ".huggingface/token", ".pgpass", ".my.cnf", ".databrickscfg", ".snowsql/config"),
    *(".vault-token", ".config/op/config", ".mozilla/firefox/x/logins.json", ".thunderbird/x/logins.json"),
    *(".config/google-chrome/Default/Cookies", ".config/chromium/Default/Cookies", ".bash_history", ".zsh_history"),
    *(".python_history", ".psql_history", ".local/share/fish/fish_history", ".lesshst", ".viminfo", ".Xauthority"),
)

#: Entries that are links to somewhere else in the home, and where they lead.
LINKED = {".config/gh": "dotfiles/gh", ".vault-token": "dotfiles/token"}

#: Files with secrets in a workspace.
ENV_FILES = (
    *(".env", ".env.local", ".env.production", "service/.env", "services/web/.env", "services/web/app/.env"),
    *(".ENV", "service/.Env", ".npmrc", "service/.npmrc", ".netrc", ".pypirc", ".git-credentials"),
    *(".claude/settings.local.json", "module/.claude/settings.local.json", "service/.mcp.json"),
    *("node_modules/x/.env", ".venv/lib/python3.11/site-packages/x/.env", "[id]/.env", "app/[slug]/a*b?/.env"),
    *(".claude/worktrees/x/.env",),
)

#: Variables of the host that name files with credentials, and where these are outside of the workspace.
VARIABLES = {
    "KUBECONFIG": "kube[1]",
    "AWS_SHARED_CREDENTIALS_FILE": "aws",
    "AWS_CONFIG_FILE": "aws-config",
    "GOOGLE_APPLICATION_CREDENTIALS": "google.json",
    "NETRC": "netrc",
    "PGPASSFILE": "pgpass",
    "DOCKER_CONFIG": "docker/config.json",
    "CARGO_HOME": "cargo/credentials.toml",
    "GNUPGHOME": "gnupg/private.key",
    "NPM_CONFIG_USERCONFIG": "npmrc",
    "PIP_CONFIG_FILE": "pip.conf",
    "XDG_CONFIG_HOME": "config/gh/hosts.yml",
    "CLAUDE_CONFIG_DIR": "claude/.credentials.json",
}

#: Configuration in a workspace that programs of the host believe or execute.
CONFIGURATION = (
    *(".git/hooks/pre-commit", ".git/hooks/post-checkout.sample", ".git/config", ".gitmodules", ".gitconfig"),
    *(".mcp.json", ".claude/settings.json", ".claude/commands/review.md", ".vscode/tasks.json", ".idea/workspace.xml"),
    *(
        ".bashrc",
        ".bash_profile",
        ".profile",
        ".zshrc",
        ".zprofile",
        ".ripgreprc",
        "sandbox-config.json",
        "ipybox.yaml",
    ),
    *("module/.git/hooks/pre-commit", "module/.git/config", "module/.mcp.json", "module/.vscode/tasks.json"),
    *("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "GEMINI.md", ".cursorrules", ".github/copilot-instructions.md"),
    *(".cursor/rules/x.mdc", ".gemini/settings.json", ".codex/config.toml", ".husky/pre-commit"),
    *(".devcontainer/devcontainer.json", ".devcontainer.json", "module/CLAUDE.md", "module/.claude/settings.json"),
    *("opencode.json", ".kiro/settings/mcp.json", ".aider.conf.yml", ".hg/hgrc", "module/.roo/mcp.json"),
)

#: What else is in a home.
HOME_FILES = (
    ".bashrc",
    ".bash_profile",
    ".profile",
    ".zshrc",
    ".gitconfig",
    "notes.txt",
    ".config/autostart/x.desktop",
)


@dataclass(frozen=True)
class Place:
    """What an attack finds.

    Attributes:
        root: The directory of all that follows, except keys and tokens.
        workspace: The kernel's working directory, with a repository and configuration in it, or empty.
        secret: The content of all files that can't be read.
    """

    root: Path
    workspace: Path
    secret: str

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def outside(self) -> Path:
        """A directory that has nothing to do with the workspace."""
        return self.root / "outside"

    def names(self) -> dict[str, str]:
        """Returns what arguments of attacks can hold in braces."""
        scratch = self.workspace / f"scratch-{secrets.token_hex(4)}"
        scratch.mkdir()
        return {
            "workspace": str(self.workspace),
            "home": str(self.home),
            "outside": str(self.outside),
            "root": str(self.root),
            "scratch": str(scratch),
            "key": str(state_dir() / "seal.key"),
            "tokens": jupyter_runtime_dir(),
        }


def make_place(root: Path, *, bare: bool = False, secret: str = "") -> Place:
    """Makes a home with credentials, a directory outside, and a workspace.

    Args:
        root: An existing directory.
        bare: Whether the workspace is empty.
        secret: What the files hold; a new one if it is empty.
    """
    secret = secret or f"secret-{secrets.token_hex(8)}"
    place = Place(root, root / ("bare" if bare else "workspace"), secret)
    place.workspace.mkdir()
    if not place.home.exists():
        for name, target in LINKED.items():
            (place.home / name).parent.mkdir(parents=True, exist_ok=True)
            (place.home / name).symlink_to(place.home / target)
            (place.home / target).parent.mkdir(parents=True, exist_ok=True)
        (place.home / "dotfiles" / "gh").mkdir()
        for name in CREDENTIALS:
            _write(place.home / name, f"{secret}\n")
        for name in HOME_FILES:
            _write(place.home / name, "# as it was\n")
        _write(place.home / ".ssh" / "program", f"#!/bin/sh\necho {secret}\n", 0o755)
        _write(place.outside / "file", "as it was\n")
        _write(place.outside / "directory" / "file", "as it was\n")
        for name in VARIABLES.values():
            _write(place.root / "elsewhere" / name, f"{secret}\n")
    if not bare:
        for name in ENV_FILES:
            _write(place.workspace / name, f"PASSWORD={secret}\n")
        for name in CONFIGURATION:
            _write(place.workspace / name, "# as it was\n")
        (place.workspace / "tools" / "bin").mkdir(parents=True)
        for repository in (place.workspace, place.workspace / "module", place.workspace / "[id]"):
            _make_repository(repository)
        # A repository whose hooks are not there.
        _make_repository(place.workspace / "hookless")
    return place


def _make_repository(directory: Path) -> None:
    git = directory / ".git"
    _write(git / "HEAD", "ref: refs/heads/main\n")
    _write(git / "config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
    for name in ("objects", "refs/heads"):
        (git / name).mkdir(parents=True)


def _write(path: Path, content: str, mode: int = 0o600) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(mode)


def state(path: Path) -> object:
    """Returns all that can be seen of a file, a link or a directory with what is in it; None if it is not there."""
    if not os.path.lexists(path):
        return None
    found = path.lstat()
    if path.is_symlink():
        return os.readlink(path)
    if path.is_dir():
        return found.st_mode, {each.name: state(each) for each in path.iterdir()}
    return found.st_mode, path.read_bytes() if path.is_file() else found.st_rdev, os.listxattr(path)


@dataclass(frozen=True)
class Outcome:
    """What an attack returned, or how it failed."""

    got: str | None
    error: str = ""

    def __str__(self) -> str:
        return f"got {self.got[:200]!r}" if self.got is not None else self.error


@dataclass(frozen=True)
class Kernel:
    """A kernel that attacks run in."""

    executor: CodeExecutor
    _sent: set[str] = field(default_factory=set[str])

    async def run(self, attack: Attack, *arguments: str) -> Outcome:
        """Runs a function of an attack module in the kernel."""
        if attack.__module__ not in self._sent:
            for name in (attack_tools.__name__, attack.__module__):
                await self.executor.execute(_sending(name))
            self._sent.add(attack.__module__)
        mark = secrets.token_hex(8)
        function = f"sys.modules[{attack.__module__!r}].{attack.__name__}"
        call = f"_answer({mark!r}, lambda: {function}(*{list(arguments)!r}))"
        try:
            result = await self.executor.execute(call, timeout=TIMEOUT)
        except CodeExecutionError as exc:
            self._sent.clear()  # its kernel may have died
            return Outcome(None, str(exc).strip().rpartition("\n")[2])
        answer = (result.text or "").partition(mark)[2].partition(mark)[0]
        assert answer, f"the attack did not answer: {result.text}"
        return Outcome(**cast(dict[str, Any], json.loads(answer)))


def _sending(name: str) -> str:
    """Returns code that makes a module of ours one of the kernel, which may not be able to read it."""
    file = sys.modules[name].__file__
    assert file is not None
    source = Path(file).read_text()
    return f"""
import json, sys, types
sys.modules[{name!r}] = types.ModuleType({name!r})
exec(compile({source!r}, {name!r}, "exec"), vars(sys.modules[{name!r}]))
def _answer(mark, attack):
    try:
        answer = {{"got": str(attack())}}
    except BaseException as exc:
        answer = {{"got": None, "error": type(exc).__name__ + ": " + str(exc)}}
    print(mark + json.dumps(answer) + mark)
"""


@asynccontextmanager
async def running(place: Place, *, sandbox: bool = True, config: Path | str | None = None) -> AsyncGenerator[Kernel]:
    """Runs a kernel in the workspace of a place."""
    async with CodeExecutor(working_dir=place.workspace, sandbox=sandbox, sandbox_config=config) as executor:
        yield Kernel(executor)


@dataclass(frozen=True)
class Probe:
    """One try to get out.

    Attributes:
        name: What is tried.
        attack: The function that tries it.
        arguments: Its arguments; `{home}` and other names of a `Place` stand for paths.
    """

    name: str
    attack: Attack
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    async def run(self, kernel: Kernel, place: Place) -> Outcome:
        """Runs the attack in a kernel, on a place."""
        names = place.names()
        return await kernel.run(self.attack, *(argument.format_map(names) for argument in self.arguments))


def held(table: list[Row], area: str, probe: Probe, control: object, outcome: object) -> None:
    """Notes that a probe held."""
    table.append(Row(area, str(probe), " ".join(str(control).split()), " ".join(str(outcome).split())))


def named(probes: list[Probe]) -> pytest.MarkDecorator:
    """Parametrizes a test with probes, whose names are its ids."""
    names = [probe.name for probe in probes]
    assert len(set(names)) == len(names), "two probes have the same name"
    return pytest.mark.parametrize("probe", probes, ids=names)
