"""The servers of `servers.toml`: what to install, and how each is started."""

import importlib.metadata
import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.comparison import in_directory
from tests.servers import ROOT

#: Where `make servers` installs them.
INSTALLED = ROOT / ".servers"
NPM = INSTALLED / "npm"
PYTHON = INSTALLED / "python"
PROGRAMS = INSTALLED / "bin"


@dataclass(frozen=True)
class PublishedServer:
    """A server of npm or PyPI.

    Attributes:
        requirement: The package and its range of versions, as npm or pip writes it.
        also: Further requirements, of a Python package.
    """

    name: str
    of_npm: bool
    requirement: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict[str, str])
    also: list[str] = field(default_factory=list[str])

    @property
    def package(self) -> str:
        """The name of the package."""
        return self.requirement.rpartition("@")[0] if self.of_npm else re.split("[<>=]", self.requirement)[0]

    def version(self) -> str:
        """Returns the version that is installed."""
        if self.of_npm:
            return json.loads((NPM / "node_modules" / self.package / "package.json").read_text())["version"]
        name = self.package.replace(".", "-")
        places = [str(place) for place in (PYTHON / name).glob("lib/python*/site-packages")]
        (found,) = importlib.metadata.distributions(name=name, path=places)
        return found.version

    def params(self, directory: Path, **env: str) -> dict[str, Any]:
        """Returns the server's parameters for an existing directory, next to which it gets a home of its own."""
        program, *args = self.command
        place = NPM / "node_modules" / ".bin" if self.of_npm else PROGRAMS
        home = Path(f"{directory}.home")
        home.mkdir(exist_ok=True)
        params = {
            "command": str(place / program),
            "args": args,
            "env": {**self.env, **env, "HOME": str(home)},
            "cwd": "{dir}",
        }
        return in_directory(params, directory)


def published_servers() -> dict[str, PublishedServer]:
    """Returns all servers by their names."""
    table = tomllib.loads((Path(__file__).parent / "servers.toml").read_text())
    return {name: _server(name, row) for name, row in table.items()}


def _server(name: str, row: dict[str, Any]) -> PublishedServer:
    of_npm = "npm" in row
    requirement = row["npm" if of_npm else "pypi"]
    return PublishedServer(name, of_npm, requirement, row["command"], row.get("env", {}), row.get("with", []))
