"""The image: what is in it, and from what it can be built."""

import re
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.docker.conftest import build, docker
from tests.servers import ROOT

#: All that a plugin's installation has of the repository, beside its launcher.
PACKAGE = ("ipybox", "pyproject.toml", "README.md", "LICENSE", "constraints.txt")
BUILD = ("Dockerfile", ".dockerignore", "docker-build.sh")

#: Bytes that an image has at most, with node.
LIMIT = 900_000_000


def size(image: str) -> int:
    return int(docker("image", "inspect", "--format", "{{.Size}}", image))


def run(image: str, *command: str) -> str:
    program, *arguments = command
    return docker("run", "--rm", "--network", "none", "--entrypoint", program, image, *arguments)


def test_it_is_small_and_smaller_without_node(image: str):
    without = build("ipybox-test-small", "--target", "ipybox")
    assert size(without) < size(image) < LIMIT
    assert run(without, "sh", "-c", "command -v node || echo none") == "none"


@pytest.mark.parametrize("program", ["node", "npm", "npx", "uv", "uvx", "git", "pip", "ipybox"])
def test_it_has_what_starts_mcp_servers(program: str, image: str):
    assert re.search(r"\d+\.\d+", run(image, program, "--version"))


def test_its_versions_are_those_of_the_constraints(image: str):
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    normalized = {re.sub(r"[-_.]+", "-", name).lower(): number for name, number in pinned.items()}
    installed = [line.split("==") for line in run(image, "pip", "list", "--format", "freeze").splitlines()]
    assert {"mcp", "ipykernel", "matplotlib", "uv"} <= {name for name, _ in installed}
    for name, number in installed:
        expected = normalized.get(re.sub(r"[-_.]+", "-", name).lower())
        assert name in ("ipybox", "setuptools") or expected == number, name


def test_its_user_is_not_root(image: str):
    assert run(image, "id", "-u") == "1000" or run(image, "id", "-un") == "ipybox"
    assert run(image, "id", "-u") != "0"


def test_it_tells_its_version(image: str):
    label = '{{index .Config.Labels "org.opencontainers.image.version"}}'
    assert docker("image", "inspect", "--format", label, image) == version("ipybox")


def test_it_can_be_built_with_other_ids_also_if_they_are_taken(image: str):
    name = build("ipybox-test-ids", "--target", "runtime", "--build-arg", "UID=1234", "--build-arg", "GID=20")
    assert run(name, "sh", "-c", "id -u ipybox; id -g ipybox") == "1234\n20"


@pytest.mark.parametrize("linked", [False, True], ids=["installed", "repository"])
def test_it_can_be_built_of_a_plugins_installation(linked: bool, tmp_path: Path, image: str):
    for name in (*PACKAGE, *BUILD):
        source, target = ROOT / name, tmp_path / name
        if linked:
            target.symlink_to(source)
        elif source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    name = build("ipybox-test-plugin", script=tmp_path / "docker-build.sh")
    assert run(name, "ipybox", "--version") == version("ipybox")


def test_a_change_of_the_sources_installs_nothing_again(tmp_path: Path, image: str):
    shutil.copytree(ROOT / "ipybox", tmp_path / "ipybox", ignore=shutil.ignore_patterns("__pycache__"))
    for name in (*PACKAGE[1:], *BUILD):
        shutil.copy(ROOT / name, tmp_path / name)
    with (tmp_path / "ipybox" / "errors.py").open("a") as source:
        source.write("# changed\n")
    name = build("ipybox-test-changed", script=tmp_path / "docker-build.sh")
    layers = '{{join .RootFS.Layers " "}}'
    before, after = (docker("image", "inspect", "--format", layers, one).split() for one in (image, name))
    assert len(before) == len(after)
    assert before[:-2] == after[:-2]  # the wheel, and what it is installed as, are the last ones


def test_no_host_of_a_registry_is_in_its_recipe():
    for name in BUILD:
        assert not re.search(r"https?://|\.(io|com|org|dev)/", (ROOT / name).read_text()), name
