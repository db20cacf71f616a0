"""Leaves out the sandbox where a test runs in both modes, except in the tests of the sandbox: a plugin of pytest.

What the two modes do differently is in those tests. Coverage takes half the time by that.
"""

import pytest

from tests.conftest import Mode
from tests.servers import ROOT

SANDBOXED = [ROOT / "tests" / "sandbox", ROOT / "tests" / "security"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        callspec = getattr(item, "callspec", None)
        mode = None if callspec is None else callspec.params.get("mode")
        other = Mode.PLAIN if any(item.path.is_relative_to(place) for place in SANDBOXED) else Mode.SANDBOX
        (left_out if mode is other else kept).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept
