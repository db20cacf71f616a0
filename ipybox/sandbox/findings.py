"""The state of each requirement of the sandbox and of Docker mode on this machine, and remedies for missing ones."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from shutil import which

#: The remedy that avoids these requirements, because the container is the sandbox then.
DOCKER_MODE = "use ipybox's Docker mode"

#: Commands that install packages, by the name of the program; the first one on PATH is used.
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
    """A remedy that is a command that installs one package.

    Attributes:
        package: The name of the package.
        commands: Commands that install packages, such as `apt-get install`; several if it is unknown which one exists.
        sentence: The instruction for a person; `{}` stands for the commands.
        as_root: Whether only root can run the command.
    """

    package: str
    commands: tuple[str, ...]
    sentence: str = "install it with {}"
    as_root: bool = False

    def __str__(self) -> str:
        return self.sentence.format(_command_line(self.commands, [self.package], self.as_root))


#: The instruction for a person, in words or as a command.
Remedy = str | Install


@dataclass(frozen=True)
class Finding:
    """One checked requirement, and if it is not met, the problem and the remedy."""

    what: str
    #: Version, path, or error of a program that failed; None if the requirement is missing.
    found: str | None
    problem: str | None = None
    remedy: Remedy | None = None

    def __str__(self) -> str:
        if self.problem is None:
            return f"{self.what}: {self.found}"
        return self.problem if self.remedy is None else f"{self.problem}: {self.remedy}"


def together(installs: Iterable[Install]) -> list[str]:
    """Returns the command lines that install all of these, with one line for all packages of the same command."""
    packages: dict[tuple[tuple[str, ...], bool], list[str]] = {}
    for install in installs:
        names = packages.setdefault((install.commands, install.as_root), [])
        if install.package not in names:
            names.append(install.package)
    return [_command_line(commands, names, as_root) for (commands, as_root), names in packages.items()]


def install_remedy(package: str | None, path: str | None) -> Remedy:
    """Returns the remedy that installs a system package, with the installer that is on the PATH."""
    if package is None:
        return "install it"
    installers = ["brew"] if sys.platform == "darwin" else list(INSTALLERS)
    present = [name for name in installers if which(name, path=path)][:1]
    commands = tuple(INSTALLERS[name] for name in present or installers[:3])
    return Install(package, commands, as_root=present not in ([], ["brew"]))


def _command_line(commands: Iterable[str], packages: Iterable[str], as_root: bool) -> str:
    alternatives = " or ".join(f"`{' '.join([command, *packages])}`" for command in commands)
    return f"{alternatives} as root" if as_root else alternatives
