from typing import Any

import pytest

from ipybox.mcp_params import RemoteServer, StdioServer, parse_params, public_url


@pytest.mark.parametrize(
    ("params", "kind"),
    [
        pytest.param({"url": "https://example.org/mcp"}, "http", id="mcp"),
        pytest.param({"url": "https://example.org/v1/mcp-server/?x=/sse"}, "http", id="mcp_within_the_path"),
        pytest.param({"url": "https://example.org/sse"}, "sse", id="sse"),
        pytest.param({"url": "https://example.org/sse/mcp"}, "http", id="mcp_last"),
        pytest.param({"url": "https://example.org/gradio_api/mcp/sse"}, "sse", id="sse_last"),
        pytest.param({"url": "https://mcp.example.org/sse"}, "sse", id="a_host_is_no_hint"),
        pytest.param({"url": "https://${HOST}/mcp"}, "http", id="placeholder_before_a_hint"),
        pytest.param({"url": "${URL}"}, None, id="unknown_until_placeholders_are_filled_in"),
        pytest.param({"url": "https://example.org/mcp", "type": "sse"}, "sse", id="type_overrides"),
        pytest.param({"url": "https://example.org", "type": "http"}, "http", id="http"),
        pytest.param({"url": "https://example.org", "type": "streamable_http"}, "http", id="streamable_http"),
        pytest.param({"url": "https://example.org", "type": "streamable-http"}, "http", id="streamable-http"),
    ],
)
def test_type_or_path_of_a_url_tell_its_transport(params: dict[str, Any], kind: Any):
    assert parse_params(params) == RemoteServer(url=params["url"], kind=kind)


def test_all_keys_of_a_stdio_server_are_taken_over():
    params: dict[str, Any] = {"type": "stdio", "command": "a", "args": ["b"], "env": {"C": "d"}, "cwd": "e"}

    assert parse_params(params) == StdioServer(command="a", args=["b"], env={"C": "d"}, cwd="e")
    assert parse_params({"command": "a", "args": None, "env": None, "cwd": None}) == StdioServer(command="a")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:password@example.org:8080/mcp?key=1#x", "https://example.org:8080/mcp"),
        ("https://${HOST}/mcp?key=${KEY}", "https://${HOST}/mcp"),
        ("${URL}", "${URL}"),
    ],
)
def test_a_public_url_has_no_credentials(url: str, shown: str):
    assert public_url(url) == shown
