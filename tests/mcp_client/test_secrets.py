"""Which secrets are found that are written out in parameters of MCP servers, and what is said about them."""

from typing import Any

import pytest

from ipybox import generate_mcp_sources
from ipybox.errors import MCPServerError
from ipybox.mcp_client.params import parse_params
from ipybox.mcp_client.secrets import literal_secrets

KEY = "sk-ant-api03-" + "x" * 20


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({"args": ["-y", "srv", "--api-key=hunter22"]}, {"the argument --api-key": "hunter22"}),
        ({"args": ["--token", "a:b=c"]}, {"the argument --token": "a:b=c"}),
        ({"args": ["-H", "Authorization: Bearer zzz111"]}, {"the argument Authorization": "zzz111"}),
        ({"args": ["-e", "DB_PASS=pw12345"]}, {"the argument DB_PASS": "pw12345"}),
        ({"args": [KEY]}, {"an argument": KEY}),
        ({"args": ["--key=${X}", "--token", "${TOKEN}", "-H", "Authorization: Bearer ${TOKEN}"]}, {}),
        ({"args": ["--sort-key", "name", "--root=/data", "--token", "--port=8080", "git+https://h/x@9f86d08188"]}, {}),
        (
            {"env": {"GITHUB_TOKEN": "abc123", "PAGER": "cat", "PORT": "8080", "T": "${T}"}},
            {"env GITHUB_TOKEN": "abc123"},
        ),
        ({"url": "https://u:p4ss@h/mcp"}, {"the password in the URL": "p4ss"}),
        ({"url": "https://h/mcp?token=xx11&page=2"}, {"token in the URL": "xx11"}),
        ({"url": "https://h/s/ab12cd34ef56ab78cd90/mcp"}, {"part of the URL": "ab12cd34ef56ab78cd90"}),
        ({"url": "https://h/mcp?token=${T}", "headers": {"Authorization": "Bearer ${T}", "Accept": "text/html"}}, {}),
        ({"url": "https://h/mcp", "headers": {"X-API-Key": "k1k1"}}, {"the header X-API-Key": "k1k1"}),
        (
            {"url": "https://h/mcp", "oauth": {"client_id": "a", "client_secret": "bbbb", "issuer": "https://i"}},
            {"oauth client_secret": "bbbb"},
        ),
    ],
)
def test_secrets_in_plain_text_are_found_by_names_and_looks(params: dict[str, Any], found: dict[str, str]):
    secrets = [*literal_secrets(parse_params(params if "url" in params else {"command": "npx", **params}))]

    assert {secret.place: secret.value for secret in secrets} == found
    for secret in secrets:
        assert secret.value not in secret.advice("github")
        assert "=<the secret> " in secret.advice("github")


@pytest.mark.parametrize(
    "params",
    [
        {"command": "missing-command", "args": ["--api-key=hunter22", "--token", "hunter22", "-e", "DB_PASS=hunter22"]},
        {"url": "http://127.0.0.1:9/s/hunter22hunter22hunter22/mcp"},
        {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer hunter22"}},
    ],
    ids=["args", "url", "header"],
)
async def test_no_error_of_a_server_names_them(params: dict[str, Any], tmp_path: Any):
    with pytest.raises(MCPServerError) as raised:
        await generate_mcp_sources("github", params, tmp_path)

    assert "hunter22" not in str(raised.value)
