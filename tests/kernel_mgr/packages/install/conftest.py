"""Settings of a sandbox, or none."""

import pytest

from ipybox.sandbox.settings import SandboxSettings, load_settings


@pytest.fixture(params=[None, pytest.param("default", marks=pytest.mark.sandbox)], ids=["plain", "sandbox"])
def settings(request: pytest.FixtureRequest) -> SandboxSettings | None:
    return None if request.param is None else load_settings(request.param)
