"""What tests with the real clients share: a repository of the working tree, an environment, homes with plugins.

Building the environment of the plugins and installing a plugin take long, so each is done once: the environment for all
processes of a run, an installation for all tests of a process.
"""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.claude.api import Turn, text, tool
from tests.claude.cli import Client, Home, publish
from tests.claude.launcher import FirstStart, first_start
from tests.docker.conftest import LABEL as CONTAINER_LABEL
from tests.docker.conftest import NETWORK, build, docker, engine
from tests.servers import WAIT

__all__ = ["engine"]  # a fixture

#: The plugins, as they are installed.
PLUGINS = ("codeact-sandbox", "codeact-default", "codeact-docker")

#: Have a test run with both clients, with the newest one only, with plugins that are spread over both, or with one
#: plugin. A test without any of them runs with the oldest client.
both_clients = pytest.mark.parametrize("client", list(Client), indirect=True)
newest_client = pytest.mark.parametrize("client", [Client.NEWEST], indirect=True)
_LOCAL = (
    pytest.param("codeact-sandbox", Client.OLDEST, marks=pytest.mark.kernel, id="codeact-sandbox"),
    pytest.param("codeact-default", Client.NEWEST, marks=pytest.mark.kernel, id="codeact-default"),
)
# Only root can have an engine for containers made here, so that is not marked as running kernels.
_IN_DOCKER = pytest.param("codeact-docker", Client.NEWEST, id="codeact-docker")
each_plugin = pytest.mark.parametrize(("installed", "client"), [*_LOCAL, _IN_DOCKER], indirect=True)
local_plugins = pytest.mark.parametrize(("installed", "client"), _LOCAL, indirect=True)
sandbox_and_docker = pytest.mark.parametrize(("installed", "client"), [_LOCAL[0], _IN_DOCKER], indirect=True)
in_sandbox = pytest.mark.parametrize("installed", ["codeact-sandbox"], indirect=True)
in_docker = pytest.mark.parametrize("installed", ["codeact-docker"], indirect=True)

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
def built(tmp_path_factory: pytest.TempPathFactory) -> FirstStart:
    """The first start of a plugin on this machine, in the first process of the tests that needs it."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "plugin-data"
    place.mkdir(exist_ok=True)
    record = place / "first-start.json"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not record.exists():
            record.write_text(json.dumps(asdict(first_start(tmp_path_factory.mktemp("first"), place)), default=str))
    return FirstStart(**json.loads(record.read_text()))


@pytest.fixture(scope="session")
def data(built: FirstStart) -> Path:
    """The `XDG_DATA_HOME` with the environment of the plugins, for all homes and all processes of the tests."""
    return Path(built.data)


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Client:
    """The version of Claude Code."""
    return getattr(request, "param", Client.OLDEST)


@pytest.fixture(scope="session")
def installations(
    tmp_path_factory: pytest.TempPathFactory, repository: Path, data: Path
) -> Iterator[Callable[[str, Client], Installed]]:
    """Installs a plugin for the first test that needs it."""
    made: dict[tuple[str, Client], Installed] = {}

    def install(plugin: str, client: Client) -> Installed:
        if (plugin, client) not in made:
            home = Home(tmp_path_factory.mktemp(plugin), repository, client=client, data=data)
            made[plugin, client] = _installed(plugin, home, tmp_path_factory.mktemp("first"))
        return made[plugin, client]

    yield install
    if any(plugin == "codeact-docker" for plugin, _ in made):
        assert docker("ps", "--all", "--quiet", "--filter", f"label={CONTAINER_LABEL}") == "", "containers were left"
    for it in made.values():
        shutil.rmtree(it.home.path)


def _installed(plugin: str, home: Home, first: Path) -> Installed:
    config = DOCKER_CONFIG if plugin == "codeact-docker" else {}
    added, installed = home.marketplace_add(), home.install(plugin, **config)
    if config:
        build(config["image"], script=home.plugin_root(plugin) / "package" / "docker-build.sh")
    it = Installed(plugin, home, config, added, installed, home.mcp_list(first))
    script: list[Turn] = [[tool("execute_ipython_cell", code="print(6 * 7)")], lambda request: [text(request.result)]]
    assert home.session("Begin", script, first, allowed=[it.tools]).answer == "42"
    return it


@pytest.fixture
def installed(
    request: pytest.FixtureRequest, client: Client, installations: Callable[[str, Client], Installed]
) -> Installed:
    """A plugin that was installed from the repository and has started once."""
    plugin: str = request.param
    if plugin == "codeact-docker":
        request.getfixturevalue("engine")
    return installations(plugin, client)


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
def home(tmp_path: Path, repository: Path, client: Client, data: Path) -> Home:
    """A home without plugins, on a machine that has their environment."""
    return Home(tmp_path, repository, client=client, data=data)


@pytest.fixture
def new_home(tmp_path: Path, repository: Path, client: Client) -> Home:
    """A home without plugins and their environment."""
    return Home(tmp_path, repository, client=client, compiles=False)
