"""Errors of hosts and sockets that the sandbox has refused are explained."""

from dataclasses import replace
from pathlib import Path

import pytest

from ipybox.sandbox.denials import explain_denials
from ipybox.sandbox.policy import SandboxPolicy
from ipybox.sandbox.settings import SandboxSettings
from tests.sandbox.denials.texts import SOURCE, refused


def test_a_file_that_is_not_trusted_does_not_open_a_host(workspace: Path):
    settings = SandboxSettings(source=SOURCE, file=workspace / "sandbox-config.json", untrusted=True, trust="trust it")
    policy = SandboxPolicy(settings, workspace)

    (about_host,) = explain_denials("curl: (6) Could not resolve host: example.org", policy)
    (about_file,) = explain_denials("/etc/q: Read-only file system", policy)

    assert about_host.endswith("To allow a host, list it in allowed_domains.")
    applies = "run `trust it` in a terminal, then start a new executor."
    assert about_file.endswith(f"filesystem.allowWrite of {workspace}/sandbox-config.json, and {applies}")

    policy = SandboxPolicy(replace(settings, untrusted=False), workspace)
    (about_host,) = explain_denials("curl: (6) Could not resolve host: example.org", policy)
    assert about_host.endswith(f"list it in allowed_domains, or in that file, and {applies}")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "ConnectionError: HTTPSConnectionPool(host='example.org', port=443): Max retries exceeded with url: / "
            "(Caused by NameResolutionError(\"HTTPSConnection(host='example.org', port=443): "
            "Failed to resolve 'example.org' "
            '([Errno -3] Temporary failure in name resolution)"))',
            id="requests",
        ),
        pytest.param(
            "Cannot connect to host example.org:443 ssl:default [Temporary failure in name resolution]", id="aiohttp"
        ),
        pytest.param("curl: (6) Could not resolve host: example.org", id="curl"),
        pytest.param("  0     0  --:--:--     0curl: (6) Could not resolve host: example.org", id="curl_progress"),
        pytest.param(
            "Resolving example.org (example.org)... failed: Temporary failure in name resolution.\n"
            "wget: unable to resolve host address ‘example.org’",
            id="wget",
        ),
        pytest.param(
            "fatal: unable to access 'https://example.org/a/b.git/': Could not resolve host: example.org", id="git"
        ),
        pytest.param("ssh: Could not resolve hostname example.org: Temporary failure in name resolution", id="ssh"),
        pytest.param("Error: getaddrinfo EAI_AGAIN example.org", id="node"),
        pytest.param(
            "npm error request to https://example.org/x failed, reason: getaddrinfo EAI_AGAIN example.org", id="npm"
        ),
        pytest.param("bash: line 1: example.org: Temporary failure in name resolution", id="bash"),
        pytest.param("dial tcp: lookup example.org: Temporary failure in name resolution", id="go"),
        pytest.param(
            "----> 1 urlopen('https://example.org/x')\n"
            "URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
            id="host_in_the_code",
        ),
        pytest.param(
            "curl: (7) Failed to connect to 192.0.2.1 port 80 after 0 ms: Couldn't connect to server", id="curl_address"
        ),
        pytest.param("socket.gaierror: [Errno -3] Temporary failure in name resolution", id="resolver"),
        pytest.param("httpx2.ConnectError: [Errno -2] Name or service not known", id="other_resolver"),
        pytest.param("OSError: [Errno 101] Network is unreachable", id="address"),
        pytest.param(
            "see https://a.test and https://b.test\nsocket.gaierror: [Errno -3] Temporary failure in name resolution",
            id="more_than_one_host",
        ),
    ],
)
def test_a_refused_network_is_explained(policy: SandboxPolicy, text: str):
    assert explain_denials(text, policy) == [
        f"The sandbox refused the network: code can reach only hosts in network.allowedDomains of {SOURCE} (now: "
        "none). To allow a host, list it in allowed_domains."
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "----> 1 socket.create_connection(('localhost', 5432))\n"
            "ConnectionRefusedError: [Errno 111] Connection refused",
            id="socket",
        ),
        pytest.param(
            "----> 1 urlopen('http://127.0.0.1:8000/')\nURLError: <urlopen error [Errno 111] Connection refused>",
            id="urllib",
        ),
        pytest.param(
            "ConnectionError: HTTPConnectionPool(host='localhost', port=5000): Max retries exceeded with url: / "
            '(Caused by NewConnectionError("Failed to establish a new connection: [Errno 111] Connection refused"))',
            id="requests",
        ),
        pytest.param(
            'connection to server at "localhost" (127.0.0.1), port 5432 failed: Connection refused', id="postgres"
        ),
        pytest.param("Error 111 connecting to localhost:6379. Connection refused.", id="redis"),
        pytest.param(
            "Cannot connect to host localhost:8000 ssl:default [Connect call failed ('127.0.0.1', 8000)]", id="aiohttp"
        ),
        pytest.param("Error: connect ECONNREFUSED ::1:3000", id="node"),
        pytest.param("curl: (7) Failed to connect to localhost port 8000 after 0 ms: Couldn't connect", id="curl"),
    ],
)
def test_a_refused_connection_to_the_own_localhost_is_explained(policy: SandboxPolicy, text: str):
    (hint,) = explain_denials(text, policy, macos=False)

    assert "the sandbox has its own localhost" in hint
    assert hint.endswith("list localhost:PORT in allowed_domains.")
    assert explain_denials(text, policy, macos=True) == []


@pytest.mark.parametrize(
    "text",
    [
        "Connection refused by peer, see https://example.org",
        "connect ECONNREFUSED 192.0.2.1:443",
        "my-localhost.example: Connection refused",
        "the server listens on localhost:8000",
    ],
)
def test_other_refused_connections_are_not_explained_by_localhost(policy: SandboxPolicy, text: str):
    assert "localhost" not in "".join(explain_denials(text, policy, macos=False)).replace("my-localhost", "")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "HTTPSConnectionPool(host='example.org', port=443): Max retries exceeded with url: / (Caused by ProxyError("
            "'Unable to connect to proxy', OSError('Tunnel connection failed: 403 Forbidden')))",
            id="requests",
        ),
        pytest.param("URLError: <urlopen error Tunnel connection failed: 403 Forbidden>", id="urllib"),
        pytest.param("httpx2.ProxyError: 403 Forbidden", id="httpx"),
        pytest.param(
            "await s.get('https://example.org/')\n"
            "ClientHttpProxyError: 403, message='Forbidden', url='http://localhost:3128'",
            id="aiohttp",
        ),
        pytest.param("curl: (56) CONNECT tunnel failed, response 403", id="curl"),
        pytest.param("Connection blocked by network allowlist", id="plain_http"),
        pytest.param("Proxy tunneling failed: ForbiddenUnable to establish SSL connection.", id="wget"),
        pytest.param(
            "fatal: unable to access 'https://example.org/a/b.git/': CONNECT tunnel failed, response 403", id="git"
        ),
        pytest.param("Error: getaddrinfo EAI_AGAIN allowed.test", id="proxy_not_used"),
    ],
)
def test_what_the_proxy_refused_is_explained(proxied: SandboxPolicy, text: str):
    assert explain_denials(text, proxied) == [
        f"The sandbox refused the network: code can reach only hosts in network.allowedDomains of {SOURCE} (now: "
        "allowed.test, *.ok.test), except those in network.deniedDomains, through the proxy in HTTP_PROXY. To allow a "
        "host, list it in allowed_domains."
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("GET http://allowed.test/\nHTTP Error 403: Forbidden", id="answer_of_an_allowed_server"),
        pytest.param("urllib.error.HTTPError: HTTP Error 403: Forbidden", id="answer_of_an_unknown_server"),
        pytest.param("Failed to resolve 'localhost'", id="the_own_localhost"),
    ],
)
def test_other_errors_are_not_explained(proxied: SandboxPolicy, text: str):
    assert explain_denials(text, proxied) == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "----> 1 socket.socket(socket.AF_UNIX)\n\nPermissionError: [Errno 1] Operation not permitted", id="python"
        ),
        pytest.param(
            "File /usr/lib/python3.11/socketserver.py:452, in TCPServer.__init__\n\n"
            "File /usr/lib/python3.11/socket.py:232, in socket.__init__\n\n"
            "PermissionError: [Errno 1] Operation not permitted",
            id="in_a_library",
        ),
        pytest.param("2026/11/21 11:53:44 socat[140] E socket(1, 1, 0): Operation not permitted", id="socat"),
        pytest.param(
            "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: "
            'Get "http://%2Fvar%2Frun%2Fdocker.sock/v1.50/containers/json": dial unix /var/run/docker.sock: socket: '
            "operation not permitted",
            id="docker",
        ),
    ],
)
def test_sockets_that_were_refused_are_explained(policy: SandboxPolicy, text: str):
    assert refused(text, policy) == [
        "a socket",
    ]
