"""What the tests with the real client share: a repository of the working tree, and homes with a plugin each."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.claude.api import Turn, text, tool
from tests.claude.cli import BUILD_TIMEOUT, Home, publish
from tests.docker.conftest import LABEL as CONTAINER_LABEL
from tests.docker.conftest import NETWORK, build, docker, engine
from tests.servers import WAIT

__all__ = ["engine"]  # a fixture

#: The plugins, as they are installed.
LOCAL_PLUGINS = ("codeact-default", "codeact-sandbox")
PLUGINS = (*LOCAL_PLUGINS, "codeact-docker")

#: What tests have agents and users make in a workspace.
MADE = ("/mcptools/", "/mcpparse/", "/gentools/", "/.env", "/begun", "/note.txt")

#: What the user of codeact-docker sets. The engine of tests has only the host's network for containers.
DOCKER_CONFIG = {"image": "ipybox-claude", "network": NETWORK}


@dataclass(frozen=True)
class Installed:
    """A plugin in a home of its own, and what its user has seen so far."""

    plugin: str
    home: Home
    config: Mapping[str, str]
    added: str
    installed: str
    listed: str
    """Servers, at the first start of this version."""

    @property
    def tools(self) -> str:
        """What allows all tools of the plugin's server."""
        return f"mcp__plugin_{self.plugin}_ipybox"


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare repository of the working tree."""
    return publish(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of the plugins: the first start builds it, for all homes and all processes of the tests."""
    made = tmp_path_factory.getbasetemp()
    return (made.parent if "PYTEST_XDIST_WORKER" in os.environ else made) / "plugin-data"


@pytest.fixture(scope="session", params=PLUGINS)
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, repository: Path, data: Path
) -> Iterator[Installed]:
    """A plugin that was installed from the repository and has started once."""
    plugin: str = request.param
    config: dict[str, str] = {}
    if plugin == "codeact-docker":
        request.getfixturevalue("engine")
        config = DOCKER_CONFIG
    home = Home(tmp_path_factory.mktemp(plugin), repository, data=data)
    added, installed = home.marketplace_add(), home.install(plugin, **config)
    if config:
        build(config["image"], script=home.plugin_root(plugin) / "package" / "docker-build.sh")
    first = tmp_path_factory.mktemp("first")
    it = Installed(plugin, home, config, added, installed, home.mcp_list(first))
    # A call waits for the environment.
    script: list[Turn] = [[tool("execute_ipython_cell", code="print(6 * 7)")], lambda request: [text(request.result)]]
    assert home.session("Begin", script, first, allowed=[it.tools], timeout=BUILD_TIMEOUT).answer == "42"
    yield it
    if config:
        assert docker("ps", "--all", "--quiet", "--filter", f"label={CONTAINER_LABEL}") == "", "containers were left"
    shutil.rmtree(home.path)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    """A repository with nothing to commit, in which ipybox leaves nothing else."""
    directory = tmp_path / "workspace"
    directory.mkdir()
    git = ["git", "-C", str(directory)]
    subprocess.run([*git, "init", "--quiet"], check=True, timeout=WAIT)
    (directory / ".git" / "info" / "exclude").write_text("\n".join(MADE))
    yield directory
    done = subprocess.run([*git, "status", "--porcelain"], check=True, stdout=subprocess.PIPE, text=True, timeout=WAIT)
    assert done.stdout == ""
    env = directory / ".env"
    assert not env.exists() or env.read_bytes(), "an empty .env was left"


@pytest.fixture
def home(tmp_path: Path, repository: Path, data: Path) -> Home:
    """A home without plugins, on a machine that has their environment."""
    return Home(tmp_path, repository, data=data)


@pytest.fixture
def new_home(tmp_path: Path, repository: Path) -> Home:
    """A home without plugins and their environment."""
    return Home(tmp_path, repository, compiles=False)
