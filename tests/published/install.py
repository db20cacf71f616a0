"""Installs the servers of `servers.toml`: `python -m tests.published.install`. What is installed and fits is kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.published.catalog import NPM, PROGRAMS, PYTHON, PublishedServer, published_servers

UV = str(Path(sys.executable).parent / "uv")


def main() -> None:
    """Installs npm's servers together, as they share much, and each Python server in a virtual environment."""
    servers = published_servers().values()
    _install_npm([server.requirement for server in servers if server.of_npm])
    for server in servers:
        if not server.of_npm:
            _install_python(server)


def _install_npm(requirements: list[str]) -> None:
    NPM.mkdir(parents=True, exist_ok=True)
    dependencies = dict(requirement.rsplit("@", 1) for requirement in requirements)
    (NPM / "package.json").write_text(json.dumps({"private": True, "dependencies": dependencies}))
    # Scripts would download browsers, which no call needs.
    options = ["--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(["npm", "install", *options], cwd=NPM, check=True)


def _install_python(server: PublishedServer) -> None:
    more = [option for requirement in server.also for option in ("--with", requirement)]
    environment = {**os.environ, "UV_TOOL_DIR": str(PYTHON), "UV_TOOL_BIN_DIR": str(PROGRAMS)}
    command = [UV, "tool", "install", "--quiet", "--python", sys.executable, *more, server.requirement]
    subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    main()
