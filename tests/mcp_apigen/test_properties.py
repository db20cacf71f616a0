"""Whatever a schema allows is sent as it is, and what it forbids is refused: `jsonschema` is the judge."""

import json
import logging
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from ipybox.guest.tools.models import wire
from ipybox.mcp_apigen.package.files import ToolSpec
from tests.mcp_apigen.conftest import Loader
from tests.mcp_apigen.corpus import SCHEMAS, own_tools, real_servers
from tests.mcp_apigen.instances import Instances
from tests.mcp_apigen.test_package import github_tools

SEED = 6
#: Valid instances per schema, and invalid ones per valid one.
VALID = 12
INVALID = 6


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:  # pyright: ignore[reportUnusedFunction] - pytest calls it
    caplog.set_level(logging.CRITICAL)


def problems(tool: ToolSpec, module: ModuleType) -> list[str]:
    """What `Params` gets wrong."""
    instances = Instances(tool.input_schema, f"{SEED} {tool.name}")
    valid = list(instances.valid(VALID))
    found = [] if valid else ["no instance was found"]
    for instance in valid:
        found += _loss(module.Params, instance)
        for keyword, other in instances.invalid(instance, INVALID):
            sent = _sent(module.Params, other)
            # What is required and has a default need not be given: it is sent nevertheless.
            if sent is not None and not instances.is_valid(sent):
                found.append(f"{tool.name}: {keyword} forbids {json.dumps(other)}")
    return found


def _loss(params: Any, instance: dict[str, Any]) -> list[str]:
    # As text, since in Python 1, 1.0 and True are equal. Fields go in the order in which they are declared.
    given = json.dumps(instance, sort_keys=True)
    try:
        sent = json.dumps(wire(params(**instance)), sort_keys=True)
    except ValidationError as exc:
        return [f"{given} is allowed: {exc.errors(include_url=False)[:2]}"]
    return [] if sent == given else [f"{given} is sent as {sent}"]


def _sent(params: Any, instance: dict[str, Any]) -> dict[str, Any] | None:
    """Returns what is sent for an instance, or `None` if it is refused."""
    try:
        return wire(params(**instance))
    except ValidationError:
        return None


def assert_faithful(tools: Sequence[ToolSpec], load: Loader) -> None:
    found = [problem for tool, module in zip(tools, load([*tools]), strict=True) for problem in problems(tool, module)]
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize("tool", own_tools(), ids=SCHEMAS)
def test_own_schemas_mean_the_same_in_python(tool: ToolSpec, load: Loader) -> None:
    assert_faithful([tool], load)


@pytest.mark.slow
def test_tools_of_real_servers_mean_the_same_in_python(load: Loader) -> None:
    assert_faithful([tool for tools in real_servers().values() for tool in tools], load)


def test_tools_of_github_mean_the_same_in_python(load: Loader) -> None:
    assert_faithful(github_tools(), load)
