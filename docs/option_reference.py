"""Writes the options into `docs/settings.md`, from the table of the command line.

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

PAGE = Path(__file__).with_name("settings.md")

#: The lines of the page between which the options are.
BEGIN = "<!-- Written by docs/option_reference.py from ipybox/cli/option_table.py: edit that, then `make docs`. -->\n"
END = "<!-- The end of the options. -->\n"

TABLE = """
### {title}
{scope}
| option | effect |
| --- | --- |
"""

CLASSES = {ExecutorConfig: "CodeExecutor", MCPServer: "MCPServer", MCPServer.run_http: "MCPServer.run_http"}


def with_options(text: str) -> str:
    """Returns the text of the page with today's options."""
    before, _, rest = text.partition(BEGIN)
    tables = ""
    shown = [option for option in OPTIONS if not option.hidden]
    for title, group in groupby(shown, lambda option: option.group):
        options = list(group)
        tables += TABLE.format(title=title, scope=_scope(options))
        tables += "".join(f"| {' | '.join(_cells(option))} |\n" for option in options)
    return before + BEGIN + tables + "\n" + END + rest.partition(END)[2]


def _scope(options: list[Option]) -> str:
    """Returns a paragraph if only one of the two servers accepts the options of a group."""
    commands = {command for option in options for command in option.commands.split()}
    if {"serve", "docker"} <= commands:
        return ""
    return "\nOnly with `ipybox docker`.\n" if "docker" in commands else "\nNot with `ipybox docker`.\n"


def _cells(option: Option) -> list[str]:
    value = f" {option.metavar}".replace("|", "/") if option.metavar else ""
    *short, long = option.opts
    names = [*(f"`{each}`" for each in short), f"`{long}{value}`"]
    receiver = f". Python: `{CLASSES[option.sets]}({option.parameter}=)`" if option.sets else ""
    return [", ".join(names), f"{option.help or ''}{receiver}"]


def main(*, check: bool) -> int:
    """Writes the page, or only compares it, and returns the exit status."""
    shown = PAGE.read_text(encoding="utf-8")
    text = with_options(shown)
    if check and shown != text:
        print(f"{PAGE.name} does not show today's options: run `make docs`", file=sys.stderr)
        return 1
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
