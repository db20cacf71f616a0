"""Writes `docs/options.md`, the reference of all options, from the table of the command line.

    python docs/option_reference.py [--check]

With --check nothing is written: it fails if the page would change. `make docs` writes it, `make lint` checks it.
"""

import sys
from pathlib import Path

from ipybox.cli.option import Command, Option, Receiver
from ipybox.cli.option_table import OPTIONS

PAGE = Path(__file__).with_name("options.md")

HEAD = """# Options

<!-- Written by docs/option_reference.py from ipybox/cli/option_table.py: edit that, and run `make docs`. -->

All options of `ipybox` and `ipybox docker`. The column *Docker* has ✓ if `ipybox docker` has the option, too. *Python*
names the parameter of a class: those of `CodeExecutor` are also the fields of `ExecutorConfig`, which `MCPServer`
accepts as its first parameter. *Plugin* names the setting of the Claude Code plugins
([claude-code.md](claude-code.md)), and the plugin if only one has it.

| Option | What it does | Docker | Python | Plugin |
| --- | --- | --- | --- | --- |
"""

CLASSES = {Receiver.EXECUTOR: "CodeExecutor", Receiver.SERVER: "MCPServer"}
PLUGINS = {"plain": "codeact-default", "sandbox": "codeact-sandbox", "docker": "codeact-docker"}


def page() -> str:
    """Returns the text of the page."""
    return HEAD + "".join(f"| {' | '.join(_cells(option))} |\n" for option in OPTIONS)


def _cells(option: Option) -> list[str]:
    names = [f"`{name}`" for name in (option.short, option.flag) if name]
    if value := option.syntax.get("metavar") or "/".join(option.syntax.get("choices", ())):
        names[-1] = f"`{option.flag} {value}`"
    text = option.help if Command.SERVE in option.commands else f"{option.help}; only of `ipybox docker`"
    if option.docker_help:
        text += f". With Docker: {option.docker_help}"
    receiver = f"`{CLASSES[option.receiver]}({option.parameter_name}=)`" if option.receiver else ""
    return [", ".join(names), text, "✓" if Command.DOCKER in option.commands else "", receiver, _setting(option)]


def _setting(option: Option) -> str:
    if option.plugin is None:
        return ""
    only = (
        ""
        if len(option.plugin.modes) == len(PLUGINS)
        else ": " + ", ".join(PLUGINS[mode] for mode in option.plugin.modes)
    )
    return f"`{option.parameter_name}`{only}"


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
