from typing import Any

import pytest

from ipybox.mcp_client.params import OAuthParams, RemoteParams, StdioParams, is_secure, parse_params, public_url


@pytest.mark.parametrize(
    ("params", "kind"),
    [
        pytest.param({"url": "https://example.org/mcp"}, "http", id="mcp"),
        pytest.param({"url": "https://example.org/v1/mcp-server/?x=/sse"}, "http", id="mcp_within_the_path"),
        pytest.param({"url": "https://example.org/sse"}, "sse", id="sse"),
        pytest.param({"url": "https://example.org/sse/v1"}, "sse", id="sse_within_the_path"),
        pytest.param({"url": "https://example.org/sse/mcp"}, "http", id="mcp_last"),
        pytest.param({"url": "https://example.org/gradio_api/mcp/sse"}, "sse", id="sse_last"),
        pytest.param({"url": "https://mcp.example.org/sse"}, "sse", id="a_host_is_no_hint"),
        pytest.param({"url": "https://${HOST}/mcp"}, "http", id="placeholder_before_a_hint"),
        pytest.param({"url": "${URL}"}, None, id="unknown_until_placeholders_are_filled_in"),
        pytest.param({"url": "https://example.org/mcp", "type": "sse"}, "sse", id="type_overrides"),
        pytest.param({"url": "https://example.org", "type": "http"}, "http", id="http"),
        pytest.param({"url": "https://example.org", "type": "streamable_http"}, "http", id="streamable_http"),
        pytest.param({"url": "https://example.org", "type": "streamable-http"}, "http", id="streamable-http"),
        pytest.param({"url": "https://example.org", "type": "streamableHttp"}, "http", id="streamableHttp"),
        pytest.param({"url": "https://example.org", "type": "HTTP"}, "http", id="upper_case"),
        pytest.param({"url": "https://example.org", "transport": "StreamableHTTP"}, "http", id="transport"),
        pytest.param({"url": "https://example.org/mcp", "transport": "sse"}, "sse", id="transport_overrides"),
        pytest.param({"url": "https://example.org", "type": "http", "transport": "streamable-http"}, "http", id="both"),
    ],
)
def test_type_or_path_of_a_url_tell_its_transport(params: dict[str, Any], kind: Any):
    assert parse_params(params) == RemoteParams(url=params["url"], kind=kind)


def test_all_keys_of_a_stdio_server_are_taken_over():
    params: dict[str, Any] = {"type": "stdio", "command": "a", "args": ["b"], "env": {"C": "d"}, "cwd": "e"}

    assert parse_params(params) == StdioParams(command="a", args=["b"], env={"C": "d"}, cwd="e")
    assert parse_params({"command": "a", "args": None, "env": None, "cwd": None}) == StdioParams(command="a")


@pytest.mark.parametrize("server", [{"command": "a"}, {"url": "https://example.org/mcp"}], ids=["command", "url"])
@pytest.mark.parametrize(
    "beside",
    [
        {"disabled": False, "autoApprove": ["x"], "timeout": 60},
        {"disabled": True, "alwaysAllow": []},
        {"enabled": True, "description": "A server", "timeout": "30s"},
        {"trust": True, "type": None, "transport": None},
    ],
    ids=lambda keys: "+".join(keys),
)
def test_what_configurations_of_other_clients_have_beside_has_no_effect(server: dict[str, Any], beside: dict[str, Any]):
    assert parse_params({**server, **beside}) == parse_params(server)


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"command": "a", "transport": "http"}, "must be 'stdio'"),
        ({"url": "https://example.org/mcp", "transport": "stdio"}, "can't be 'stdio'"),
        ({"url": "https://example.org/mcp", "transport": "tcp"}, r"\['transport'\] must be one of"),
        ({"command": "a", "transport": 1}, r"\['transport'\] must be one of"),
        ({"mcpServers": {"a": {"command": "a"}}}, "must describe a single server"),
        ({"command": "a", "disable": True}, r"unknown keys \['disable'\]"),
    ],
)
def test_a_configuration_whose_meaning_is_unclear_is_an_error(params: dict[str, Any], problem: str):
    with pytest.raises(ValueError, match=problem):
        parse_params(params)


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


@pytest.mark.parametrize("uri", ["http://localhost:8765/callback", "http://[::1]:1/x", "${CALLBACK}"])
def test_a_sign_in_ends_on_this_machine_or_where_a_variable_says(uri: str):
    server = parse_params({"url": "https://example.org/mcp", "oauth": {"redirect_uri": uri}})

    assert isinstance(server, RemoteParams)
    assert server.oauth == OAuthParams(redirect_uri=uri)


def test_what_was_agreed_with_an_authorization_server_is_taken_over():
    oauth = {"client_id": "me", "client_secret": "${SECRET}", "issuer": "https://example.org", "scope": "read"}
    server = parse_params({"url": "https://example.org/mcp", "oauth": oauth})

    assert isinstance(server, RemoteParams)
    assert server.oauth == OAuthParams(
        client_id="me", client_secret="${SECRET}", issuer="https://example.org", scope="read"
    )


@pytest.mark.parametrize(
    ("oauth", "problem"),
    [
        pytest.param("yes", "must be a dict", id="no_dict"),
        pytest.param({"client": "me"}, r"unknown keys \['client'\]", id="unknown_key"),
        pytest.param({"client_id": 1}, r"\['client_id'\] is not valid: Input should be a valid string", id="no_string"),
        pytest.param(
            {"grant": "password"},
            r"\['grant'\] is not valid: Input should be 'authorization_code' or",
            id="unknown_grant",
        ),
        pytest.param({"client_id": "a", "client_secret": "b"}, "'issuer' along with a secret", id="secret_for_nobody"),
        pytest.param({"client_secret": "b", "issuer": "https://c"}, "needs 'client_id'", id="secret_of_nobody"),
        pytest.param({"grant": "client_credentials", "client_id": "a"}, "or 'private_key' for", id="no_secret"),
        pytest.param({"client_secret": "a", "private_key": "b"}, "both 'client_secret' and", id="two_secrets"),
        pytest.param(
            {"client_id": "a", "private_key": "b", "issuer": "https://c"},
            "only for the grant 'client_credentials'",
            id="key_and_person",
        ),
        pytest.param(
            {"client_id": "a", "client_metadata_url": "https://b/c"}, "can't contain both 'client_id'", id="two_clients"
        ),
        pytest.param({"client_metadata_url": "http://b/c"}, "starts with https:// and has a path", id="open_document"),
        pytest.param({"redirect_uri": "http://example.org:1/x"}, "on this machine", id="another_machine"),
        pytest.param({"redirect_uri": "http://localhost/x"}, "on this machine with a port", id="no_port"),
        pytest.param({"redirect_uri": "http://localhost:port/x"}, "on this machine with a port", id="wrong_port"),
    ],
)
def test_wrong_oauth_parameters_are_named(oauth: Any, problem: str):
    with pytest.raises(ValueError, match=problem):
        parse_params({"url": "https://example.org/mcp", "oauth": oauth})


@pytest.mark.parametrize(
    "given",
    [{"url": "https://example.org/mcp", "headers": {"authorization": "x"}}, {"url": "https://a:b@example.org/mcp"}],
    ids=["header", "url"],
)
def test_a_server_has_credentials_or_oauth(given: dict[str, Any]):
    with pytest.raises(ValueError, match="can't combine 'oauth' with"):
        parse_params({**given, "oauth": {}})


@pytest.mark.parametrize(
    ("url", "secure"),
    [
        ("https://example.org/token", True),
        ("http://127.0.0.1:8000/token", True),
        ("http://localhost/token", True),
        ("http://[::1]:8000/token", True),
        ("http://example.org/token", False),
        ("http://localhost.example.org/token", False),
        ("file:///etc/passwd", False),
    ],
)
def test_tokens_travel_by_https_or_stay_on_the_machine(url: str, secure: bool):
    assert is_secure(url) is secure
