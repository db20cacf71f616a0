"""Writes `docs/options.md`, the reference of all options, from the table of the command line.

    python docs/option_reference.py [--check]

With --check nothing is written: it fails if the page would change. `make docs` writes it, `make lint` checks it.
"""

import sys
from itertools import groupby
from pathlib import Path

from ipybox.cli.option import Option
from ipybox.cli.option_table import OPTIONS
from ipybox.code_exec.config import ExecutorConfig
from ipybox.mcp_server.server import MCPServer
from plugins.settings import SETTINGS

PAGE = Path(__file__).with_name("options.md")

HEAD = """# Options

<!-- Written by docs/option_reference.py from ipybox/cli/option_table.py: edit that, and run `make docs`. -->

The options of `ipybox serve` and `ipybox docker`, and of the commands that run a kernel and then end. *Python* names
the parameter that an option sets: those of `CodeExecutor` are also the fields of `ExecutorConfig`, which `MCPServer`
accepts as its first parameter. *Plugin* names the setting of the Claude Code plugins
([claude-code.md](claude-code.md)), and the plugin if only one has it.

Without a command, `ipybox` serves if it gets options or if its input is not a terminal. All commands accept
`--workspace`; `ipybox COMMAND --help` lists their other options. If an option is given twice, the last one counts,
except for repeatable options. `ipybox` exits with status 2 if the command line is wrong, and with 1 if something else
fails.
"""

TABLE = """
## {title}

| Option | What it does | Commands | Python | Plugin |
| --- | --- | --- | --- | --- |
"""

CLASSES = {ExecutorConfig: "CodeExecutor", MCPServer: "MCPServer", MCPServer.run_http: "MCPServer.run_http"}
PLUGINS = {"plain": "codeact-default", "sandbox": "codeact-sandbox", "docker": "codeact-docker"}


def page() -> str:
    """Returns the text of the page."""
    text = HEAD
    for title, options in groupby(OPTIONS, lambda option: option.group):
        text += TABLE.format(title=title) + "".join(f"| {' | '.join(_cells(option))} |\n" for option in options)
    return text


def _cells(option: Option) -> list[str]:
    value = f" {option.metavar}".replace("|", "/") if option.metavar else ""
    *short, long = option.opts
    names = [*(f"`{each}`" for each in short), f"`{long}{value}`"]
    commands = ", ".join(option.commands.split())
    receiver = f"`{CLASSES[option.sets]}({option.parameter}=)`" if option.sets else ""
    return [", ".join(names), option.help or "", commands, receiver, _setting(option)]


def _setting(option: Option) -> str:
    if (setting := SETTINGS.get(option.parameter)) is None:
        return ""
    only = "" if len(setting.modes) == len(PLUGINS) else ": " + ", ".join(PLUGINS[mode] for mode in setting.modes)
    return f"`{option.parameter}`{only}"


def main(*, check: bool) -> int:
    """Writes the page, or only compares it, and returns the exit status."""
    text = page()
    if check and PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE.name} is not what the options are: run `make docs`", file=sys.stderr)
        return 1
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
