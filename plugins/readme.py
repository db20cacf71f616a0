"""The plugins of the marketplace, and their READMEs: what each runs, downloads and sends, and where it keeps files."""

from collections.abc import Mapping
from dataclasses import dataclass

from plugins.settings import settings

#: Hosts that uv reaches for a Python. The index of packages is the user's choice, so it is not among the hosts.
PYTHON_HOSTS = ("github.com", "release-assets.githubusercontent.com")

#: Where people set the options of a plugin without being asked for them.
SETTINGS_FILE = "~/.claude/settings.json"

#: The `ipybox` that the plugins install.
COMMAND = "~/.local/share/ipybox/environments/ipybox"


@dataclass(frozen=True)
class Plugin:
    """A plugin of the marketplace.

    Attributes:
        mode: The mode in which its launcher starts ipybox.
        name: Its name.
        title: Its name in the user interface.
        description: What it does, in two sentences.
        install: The arguments of `claude plugin install`.
        runs: Where code and MCP servers run, for the README.
        reaches: What code can reach, for the README.
        hosts: Network hosts that it reaches by itself.
    """

    mode: str
    name: str
    title: str
    description: str
    install: str
    runs: str
    reaches: str
    hosts: tuple[str, ...]

    @property
    def place(self) -> str:
        """Its directory in the repository."""
        return f"plugins/{self.name}"


#: The plugins by mode, the recommended one first.
MODES = {
    "sandbox": Plugin(
        "sandbox",
        "codeact-sandbox",
        "ipybox (sandbox)",
        "Claude writes Python that calls MCP tools. The code runs in a sandbox that confines it to the workspace.",
        "codeact-sandbox@ipybox --config approve=ask",
        "IPython kernels run Claude's code in Anthropic's "
        "[sandbox-runtime](https://github.com/anthropic-experimental/sandbox-runtime) (`srt`), which you install "
        "yourself; if it is missing, the session shows the command to run. The MCP servers that you register run "
        "outside the sandbox, with your permissions.",
        "In the sandbox, code can reach only the hosts in `allowed_domains` and in a `sandbox-config.json` that you "
        "trust. By default, it can't reach any.",
        PYTHON_HOSTS,
    ),
    "plain": Plugin(
        "plain",
        "codeact-default",
        "ipybox (no sandbox)",
        "Claude writes Python that calls MCP tools. The code runs without a sandbox, with your permissions.",
        "codeact-default@ipybox --config approve=ask",
        "IPython kernels run Claude's code on your machine, **without a sandbox**: it can do whatever you can, and "
        "could start an MCP server itself to get around an approval. The MCP servers that you register run with your "
        "permissions as well. Prefer `codeact-sandbox` where the sandbox works.",
        "Code can reach every host that your machine can reach.",
        PYTHON_HOSTS,
    ),
    "docker": Plugin(
        "docker",
        "codeact-docker",
        "ipybox (Docker)",
        "Claude writes Python that calls MCP tools. The code and the MCP servers run in a Docker container.",
        "codeact-docker@ipybox --config approve=ask",
        "IPython kernels run Claude's code in a Docker container, together with the MCP servers that you register. "
        "The container can access none of your files except the workspace. You build its image once; the session shows "
        "the command to run.",
        "Code and MCP servers can reach every host that the container can reach; to cut it off, set `network=none`.",
        PYTHON_HOSTS[:1],
    ),
}

_DOWNLOADS_PACKAGES = """\
On the first start, the plugin downloads {count} Python packages (250 MB installed) from PyPI, or from the index in your
uv or pip configuration. `launch/requirements.txt` pins their versions. The plugin uses
[uv](https://docs.astral.sh/uv/) if it is installed, and otherwise downloads it with Python's own `venv` and `pip`. If
uv is installed but Python 3.11 or later isn't, uv downloads Python 3.13 from GitHub. ipybox itself is part of the
plugin (`package/`)."""

_DOWNLOADS_IMAGE = """\
Building the image downloads `python:3.11-slim` from Docker Hub, and packages from PyPI and npm. The plugin itself
downloads nothing."""

_PACKAGES_ROW = """\
| `~/.local/share/ipybox/environments` | the installed packages, shared by all versions of all ipybox plugins |
"""

_REMOVE_PACKAGES = f"""\
`claude plugin uninstall` removes the plugin, but not its packages and state. Remove those first with `ipybox clean`,
which lists what it is about to remove and asks for confirmation.

```bash
{COMMAND} clean
claude plugin uninstall {{name}}@ipybox
```"""

_REMOVE_IMAGE = """\
`claude plugin uninstall` removes the plugin, but not the image and the state.

```bash
claude plugin uninstall {name}@ipybox
docker image rm ipybox
rm -r ~/.local/state/ipybox
```"""

_TEMPLATE = """\
# {title}

{description} One code action does what would
otherwise take many tool calls, and only what the code prints reaches Claude.

```bash
claude plugin marketplace add gradion-ai/ipybox
claude plugin install {install}
```

With `approve=ask`, a tool call that the code makes runs only if you approve it. Without it, every call runs.

## What it runs

- An MCP server, `ipybox`, which starts with each session. Its tools run code, register MCP servers, install packages
  and reset the kernel.
- {runs}
- A `SessionStart` hook, which takes a second at most. It tells you and Claude what is missing, and changes nothing.
- The skill `codeact`, which tells Claude how to use the tools.

## What it downloads

{downloads}

When Claude calls `install_package`, the package comes from the same index. An MCP server that you register may download
its own packages, as `npx` and `uvx` do.

## What it sends

ipybox has no telemetry and sends nothing to its authors. Claude receives the code's output, including images. MCP
servers receive the calls that the code makes to them. {reaches}

## Where it keeps files

| path | contents |
| --- | --- |
| `mcptools/`, `mcpparse/`, `gentools/` in the workspace | generated tool APIs, output parsers, saved code actions |
| `.ipybox/` in the workspace | installed packages, long outputs, the audit log |
| `~/.local/state/ipybox` | keys, sign-ins to MCP servers, and which files you trust |
{packages}
To move the directories under `~/.local`, set `$XDG_DATA_HOME` and `$XDG_STATE_HOME`.

## Settings

Set them with `--config NAME=VALUE` when you install the plugin, or later with `/plugin configure`. VS Code and the
desktop app never ask for them; there, edit `{settings_file}`:

```json
{{"pluginConfigs": {{"{name}@ipybox": {{"options": {{"approve": "ask", "memory_limit": "4G"}}}}}}}}
```

| setting | default | meaning |
| --- | --- | --- |
{settings}

Changes take effect in the next session. A repository can't change these settings: ipybox refuses to start if the
workspace's `.claude/settings.json` contains any of them.

## Uninstall

{remove}

[Documentation](https://gradion-ai.github.io/ipybox/) · [Security](https://github.com/gradion-ai/ipybox/blob/main/SECURITY.md)
"""


def readme(plugin: Plugin, defaults: Mapping[str, str | bool], packages: int) -> str:
    """Returns the README of a plugin.

    Args:
        plugin: The plugin.
        defaults: The defaults of its settings, if not empty.
        packages: The number of packages that it installs.
    """
    in_container = plugin.mode == "docker"
    return _TEMPLATE.format(
        name=plugin.name,
        title=plugin.title,
        description=plugin.description,
        install=plugin.install,
        runs=plugin.runs,
        reaches=plugin.reaches,
        downloads=_DOWNLOADS_IMAGE if in_container else _DOWNLOADS_PACKAGES.format(count=packages),
        packages="" if in_container else _PACKAGES_ROW,
        settings_file=SETTINGS_FILE,
        settings="\n".join(
            _row(option.parameter, defaults.get(option.parameter, ""), setting.description)
            for option, setting in settings(plugin.mode)
        ),
        remove=(_REMOVE_IMAGE if in_container else _REMOVE_PACKAGES).format(name=plugin.name),
    )


def _row(parameter: str, default: str | bool, description: str) -> str:
    shown = str(default).lower() if isinstance(default, bool) else default
    return f"| `{parameter}` | {f'`{shown}`' if shown else 'empty'} | {description} |"
