"""The names that the sandbox treats specially, all in one place.

What code must not read:  SECRET_FILES in the workspace, CREDENTIALS elsewhere; both are defaults of `denyRead`.
What it must not write:   PROTECTED_FILES and PROTECTED_DIRS wherever they exist in the workspace, and STATE_DIR.
What it must not create:  PLACEHOLDERS, in the workspace's own directory.
What a user may open:     OPENABLE, by its path in `allowWrite`.

Names match in upper and lower case, because some file systems ignore case.
"""

import os
import pwd
from typing import Final

#: The name of ipybox itself in approvals, the audit log and clients' configurations; no MCP server has it.
OWN_NAME: Final = "ipybox"

#: Its tools that install and remove packages.
INSTALL_TOOL: Final = "install_package"
UNINSTALL_TOOL: Final = "uninstall_package"

#: The ipybox directory of the workspace, which only the host writes.
STATE_DIR: Final = ".ipybox"

#: The directory of the workspace for generated tool APIs.
MCPTOOLS: Final = "mcptools"

#: Files of the workspace that hold secrets.
SECRET_FILES: Final = (
    *("**/.env*", "**/.npmrc", "**/.netrc", "**/.pypirc", "**/.git-credentials"),
    *("**/.mcp.json", "**/.claude/settings.local.json"),
)

#: Files and directories with credentials outside of the workspace. `expand` reads the variables.
CREDENTIALS: Final = (
    *("~/.ssh", "~/.gnupg", "~/.password-store", "~/.local/share/keyrings", "~/Library/Keychains"),
    *("~/.aws", "~/.azure", "~/.config/gcloud", "~/.boto", "~/.s3cfg", "~/.oci", "~/.config/rclone"),
    *("~/.kube", "~/.docker/config.json", "~/.config/containers/auth.json", "~/.terraform.d/credentials.tfrc.json"),
    *("~/.netrc", "~/.git-credentials", "~/.config/git/credentials", "~/.config/gh", "~/.config/glab-cli"),
    *("~/.npmrc", "~/.yarnrc.yml", "~/.pypirc", "~/.pip", "~/.config/pip", "~/.config/uv", "~/.gem/credentials"),
    *("~/.cargo/credentials", "~/.cargo/credentials.toml", "~/.m2/settings.xml", "~/.gradle/gradle.properties"),
    *("~/.claude*", "~/.config/claude", "~/.codex", "~/.gemini", "~/.cache/huggingface/token", "~/.huggingface"),
    *("~/.cursor/mcp.json", "~/.copilot", "~/.qwen", "~/.config/Claude", "~/.config/opencode", "~/.config/zed"),
    *("~/.config/Code/User/mcp.json", "~/.config/Code/User/settings.json", "~/Library/Application Support/Claude"),
    *("~/.pgpass", "~/.my.cnf", "~/.databrickscfg", "~/.snowsql", "~/.vault-token", "~/.config/op"),
    *("~/.mozilla", "~/.thunderbird", "~/.config/google-chrome", "~/.config/chromium", "~/Library/Cookies"),
    *("~/.*_history", "~/.local/share/fish/fish_history", "~/.lesshst", "~/.viminfo", "~/.Xauthority"),
    *("~/.local/state/ipybox", "/etc/shadow", "/etc/gshadow", "/etc/ssh/ssh_host_*_key"),
    # Where these variables of the host relocate them.
    *("$GNUPGHOME", "$PASSWORD_STORE_DIR", "$AWS_SHARED_CREDENTIALS_FILE", "$AWS_CONFIG_FILE"),
    *("$AWS_WEB_IDENTITY_TOKEN_FILE", "$AZURE_CONFIG_DIR", "$GOOGLE_APPLICATION_CREDENTIALS", "$CLOUDSDK_CONFIG"),
    *("$BOTO_CONFIG", "$OCI_CLI_CONFIG_FILE", "$RCLONE_CONFIG", "$KUBECONFIG", "$DOCKER_CONFIG/config.json"),
    *("$REGISTRY_AUTH_FILE", "$TF_CLI_CONFIG_FILE", "$NETRC", "$GH_CONFIG_DIR", "$NPM_CONFIG_USERCONFIG"),
    *("$npm_config_userconfig", "$PIP_CONFIG_FILE", "$UV_CONFIG_FILE", "$CARGO_HOME/credentials"),
    *("$CARGO_HOME/credentials.toml", "$GRADLE_USER_HOME/gradle.properties", "$CLAUDE_CONFIG_DIR", "$CODEX_HOME"),
    *("$HF_TOKEN_PATH", "$HF_HOME/token", "$PGPASSFILE", "$DATABRICKS_CONFIG_FILE", "$HISTFILE", "$XAUTHORITY"),
)

_SHELL_AND_GIT: Final = (
    *(".bashrc", ".bash_profile", ".profile", ".zshrc", ".zprofile"),
    *(".gitconfig", ".gitmodules", ".ripgreprc"),
)
_INSTRUCTIONS: Final = (
    *("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "GEMINI.md", ".cursorrules", "copilot-instructions.md"),
)
_TOOLS: Final = (
    *(".husky", ".devcontainer", ".cursor", ".gemini", ".codex", ".opencode", ".kiro", ".windsurf", ".roo"),
    *(".amazonq", ".qwen", ".continue", ".zed"),
)
#: Agents' configuration files that aren't hidden from people, so they get no placeholders.
_AGENTS: Final = ("opencode.json", "opencode.jsonc", "crush.json", ".crush.json")

#: Files that host programs trust or execute, including agents' instructions.
PROTECTED_FILES: Final = (
    *_SHELL_AND_GIT,
    *(".env", ".mcp.json", "sandbox-config.json", "ipybox.yaml", ".devcontainer.json"),
    *(".aider.conf.yml", *_AGENTS, *_INSTRUCTIONS),
)
#: Directories of such files.
PROTECTED_DIRS: Final = (".git", ".hg", ".claude", ".idea", ".vscode", *_TOOLS)

#: Protected names that may appear during a session: agents on the host create instructions (`/init`), ipybox asks
#: before a new file of its own opens anything (`trust`), and others would confuse programs if they were empty.
_CREATABLE: Final = (*_INSTRUCTIONS, *_AGENTS, "sandbox-config.json", "ipybox.yaml", ".hg")

#: Placeholders in the workspace's own directory while a sandbox runs there: a file with this content, or an empty
#: directory if it is None. All their names are hidden. `git status` shows no empty directories, and `git pull` replaces
#: them. The files are those that people, git and agents read or write during a session; a `.mcp.json` must be JSON.
PLACEHOLDERS: Final[dict[str, str | None]] = {
    **dict.fromkeys(name for name in (*PROTECTED_FILES, *PROTECTED_DIRS) if name not in _CREATABLE),
    **{".env": "", ".gitmodules": "", ".aider.conf.yml": "", ".mcp.json": '{"mcpServers": {}}\n'},
}

#: The placeholders that host programs read in a home directory, where git fails on a directory.
HOME_FILES: Final = _SHELL_AND_GIT

#: Protected names that an `allowWrite` entry with their path opens, and the parts that stay closed.
OPENABLE: Final[dict[str, tuple[str, ...]]] = {
    ".git": ("hooks", "config"),
    ".hg": ("hgrc",),
    **dict.fromkeys((*_INSTRUCTIONS, *_TOOLS, *_AGENTS, ".devcontainer.json", ".aider.conf.yml"), ()),
}

#: Directories of installed packages. Names that are protected elsewhere can be written there, because packages contain
#: such names, and people don't open these directories as projects; secrets stay hidden.
PACKAGES: Final = ("node_modules", "site-packages", "__pycache__")

#: Directories in a home, and the XDG variables that relocate them.
_XDG: Final = {"~/.config/": "$XDG_CONFIG_HOME", "~/.local/share/": "$XDG_DATA_HOME", "~/.cache/": "$XDG_CACHE_HOME"}


def expand(entry: str) -> list[str]:
    """Returns the paths that a `denyRead` entry expands to.

    A leading `$NAME` is an environment variable, which may list any number of paths. `~` expands to both HOME and the
    home of the user's account, because a different HOME does not remove the account's credentials.
    """
    home = account_home()
    if (entry == "~" or entry.startswith("~/")) and home is not None and home != os.path.expanduser("~"):
        return [*_moved(entry), f"{literal(home)}{entry.removeprefix('~')}"]
    return _moved(entry)


def account_home() -> str | None:
    """Returns the home of the user's account, whatever HOME says; None for a user without one, as in containers."""
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None
    return home if os.path.isabs(home) else None


def _moved(entry: str) -> list[str]:
    for prefix, variable in _XDG.items():
        if entry.startswith(prefix):
            return [entry, *_moved(f"{variable}/{entry.removeprefix(prefix)}")]
    if not entry.startswith("$"):
        return [entry]
    name, slash, rest = entry[1:].partition("/")
    values = os.environ.get(name, "").split(os.pathsep)
    # Users name a device to say that there is no such file.
    return [f"{literal(value)}{slash}{rest}" for value in values if value and not value.startswith("/dev/")]


def literal(path: str) -> str:
    """Returns a pattern for one path: srt treats `*`, `?` and brackets as wildcards, and has no escape for them."""
    return "".join("?" if character in "*?[]" else character for character in path)


def is_protected(name: str) -> bool:
    """Returns whether host programs trust or execute files with this name."""
    return name.lower() in _PROTECTED


_PROTECTED: Final = frozenset(name.lower() for name in (*PROTECTED_FILES, *PROTECTED_DIRS))
