"""What holds of the MCP server outside of a container holds in one: the same tests, as far as no path is in them."""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from mcp import Client

from tests.conftest import Mode
from tests.docker.conftest import client_of
from tests.mcp_server import test_server as server
from tests.mcp_server.test_server import (
    served,
    test_file_tools_are_offered_where_directories_are_allowed,
    test_long_output_is_cut_and_paged_through_by_resource,
    test_nothing_is_said_that_only_costs_context,
    test_registration_that_fails_says_why,
    test_timeout_says_what_became_of_the_kernel_and_what_was_printed,
)

__all__ = [
    "served",
    "test_file_tools_are_offered_where_directories_are_allowed",
    "test_long_output_is_cut_and_paged_through_by_resource",
    "test_nothing_is_said_that_only_costs_context",
    "test_registration_that_fails_says_why",
    "test_timeout_says_what_became_of_the_kernel_and_what_was_printed",
]


@pytest.fixture(scope="module")
def mode() -> Mode:
    """That of the server in the container."""
    return Mode.PLAIN


@pytest.fixture(scope="module", autouse=True)
def in_a_container(image: str) -> Iterator[None]:
    """Has the tests' clients start the server by `ipybox docker`."""

    def client_in_container(workspace: Path, *options: str, **env: str) -> AbstractAsyncContextManager[Client]:
        return client_of(workspace, image, *options, **env)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(server, "client_of", client_in_container)
        yield
