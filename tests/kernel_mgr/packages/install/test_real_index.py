"""Packages of the real index, and environments without pip."""

from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ipybox.sandbox.settings import SandboxSettings, load_settings
from tests.kernel_mgr.packages.index import install, tree


async def test_package_of_the_real_index_is_installed(place: Path, settings: SandboxSettings | None):
    assert await install(place, "cowsay==6.1", settings) == "Installed cowsay-6.1"
    assert "cowsay/__init__.py" in tree(place)


@pytest.mark.sandbox
async def test_source_of_the_real_index_is_built_with_setuptools(place: Path):
    assert await install(place, "docopt==0.6.2", load_settings()) == "Installed docopt-0.6.2"
    assert "docopt.py" in tree(place)


def test_environments_without_pip_get_it():
    assert {"pip", "packaging"} <= {Requirement(text).name for text in requires("ipybox") or []}
