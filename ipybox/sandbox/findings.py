"""Findings about the requirements of the sandbox, Docker mode and the plugins on this machine, with remedies.

Programs are looked up on PATH and checked.
"""

import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from shutil import which

from ipybox.support.probe import ProbeResult, probe
from ipybox.workspace.writable import dropped_program

Version = tuple[int, ...]

#: The remedy that avoids these requirements, because the container replaces the sandbox.
DOCKER_MODE = "use ipybox's Docker mode"

#: Commands that install packages, by program; the first program on PATH is used.
INSTALLERS = {
    "apt-get": "apt-get install",
    "dnf": "dnf install",
    "pacman": "pacman -S",
    "zypper": "zypper install",
    "apk": "apk add",
    "brew": "brew install",
}


@dataclass(frozen=True)
class Install:
    """A remedy: a command that installs one package, or alternatives if it is unknown which one exists.

    In `sentence`, `{}` is replaced with the commands.
    """

    package: str
    commands: tuple[str, ...]
    sentence: str = "install it with {}"
    as_root: bool = False

    def __str__(self) -> str:
        return self.sentence.format(_command_line(self.commands, [self.package], self.as_root))


INSTALL_UV = Install("uv", ("pip install",), "install it with {}; it starts the Claude Code plugins")

#: An instruction in words, or a command that installs something.
Remedy = str | Install


@dataclass(frozen=True)
class Finding:
    """A checked requirement. If it isn't met, with the problem and the remedy."""

    what: str
    #: A version, a path, or a failed program's error; None if the requirement is missing.
    found: str | None
    problem: str | None = None
    remedy: Remedy | None = None

    def __str__(self) -> str:
        if self.problem is None:
            return f"{self.what}: {self.found}"
        return self.problem if self.remedy is None else f"{self.problem}: {self.remedy}"


def together(installs: Iterable[Install]) -> list[str]:
    """Returns the command lines that install all of these, one line per command."""
    packages: dict[tuple[tuple[str, ...], bool], list[str]] = {}
    for install in installs:
        names = packages.setdefault((install.commands, install.as_root), [])
        if install.package not in names:
            names.append(install.package)
    return [_command_line(commands, names, as_root) for (commands, as_root), names in packages.items()]


def _command_line(commands: Iterable[str], packages: Iterable[str], as_root: bool) -> str:
    alternatives = " or ".join(f"`{' '.join([command, *packages])}`" for command in commands)
    return f"{alternatives} as root" if as_root else alternatives


@dataclass(frozen=True)
class Program:
    """A program that must be on PATH, and the arguments that print its version."""

    #: What the program is called, and its package, unless there is another remedy.
    what: str
    name: str
    arguments: tuple[str, ...] = ("--version",)
    minimum: Version | None = None
    remedy: Remedy | None = None

    def installation(self, path: str | None) -> Remedy:
        """Returns how to install it; a system package with the installer on PATH."""
        if self.remedy is not None:
            return self.remedy
        installers = ["brew"] if sys.platform == "darwin" else list(INSTALLERS)
        present = [name for name in installers if which(name, path=path)][:1]
        commands = tuple(INSTALLERS[name] for name in present or installers[:3])
        return Install(self.what, commands, as_root=present not in ([], ["brew"]))


NODE = Program("node", "node", minimum=(20, 11, 0), remedy="install Node.js 20.11 or later")

#: The programs that srt runs, by platform. It uses `which` to find the others, and bash to start each command.
PROGRAMS: dict[str, tuple[Program, ...]] = {
    "linux": (
        Program("bubblewrap", "bwrap"),
        Program("socat", "socat", ("-V",)),
        Program("ripgrep", "rg"),
        Program("bash", "bash"),
        Program("which", "which", ("sh",)),
    ),
    "darwin": (
        Program("ripgrep", "rg"),
        Program(
            "sandbox-exec",
            "sandbox-exec",
            ("-p", "(version 1)(allow default)", "/usr/bin/true"),
            remedy="it is part of macOS: add /usr/bin to PATH, and don't run ipybox in another sandbox",
        ),
    ),
}


def examine(program: Program, path: str | None = None) -> Finding:
    """Returns a finding with a program's version or problem. Blocks for at most `PROBE_TIMEOUT`."""
    finding = presence(program, path)
    if finding.found is None:
        return finding
    outcome = probe([finding.found, *program.arguments], path=path)
    if outcome.failure:
        return as_broken(finding, program.name, outcome, program.remedy or "install it again")
    version = parse_version(outcome.output)
    if version is None:
        return finding
    finding = replace(finding, found=f"{version_text(version)} ({finding.found})")
    if program.minimum and version < program.minimum:
        problem = f"{program.name} {version_text(version)} is older than {version_text(program.minimum)}"
        return replace(finding, problem=problem, remedy=program.installation(path))
    return finding


def presence(program: Program, path: str | None) -> Finding:
    """Returns a finding with a program's path, or how to install it, without running it."""
    executable = find_program(program.name, path)
    if executable is None:
        return Finding(program.what, None, absence(program.name), program.installation(path))
    return Finding(program.what, executable)


def absence(name: str) -> str:
    """Returns why a program can't be found on PATH."""
    dropped = dropped_program(name)
    place = "not on PATH" if dropped is None else f"only at {dropped}, which code in the kernel can write to"
    return f"{name} is {place}"


def as_broken(finding: Finding, name: str, outcome: ProbeResult, remedy: Remedy) -> Finding:
    """Returns the finding for a program that failed, or timed out, perhaps because the machine is busy."""
    if outcome.timed_out:
        problem, remedy = f"{name} {outcome.failure}; the machine may be busy", f"try again; if that fails, {remedy}"
    else:
        problem = f"{name} is broken: it {outcome.failure}"
    return replace(finding, problem=problem, remedy=remedy)


def find_program(name: str, path: str | None) -> str | None:
    """Returns the absolute path of a program on PATH, or `None` if it isn't there."""
    found = which(name, path=path)
    return None if found is None else os.path.abspath(found)


def parse_version(text: str) -> Version | None:
    """Returns the first version number in a text, or `None` if there is none."""
    numbers = re.search(r"\d+(\.\d+)+", text)
    return None if numbers is None else tuple(int(number) for number in numbers[0].split("."))


def version_text(version: Version) -> str:
    """Returns a version as text."""
    return ".".join(str(number) for number in version)
