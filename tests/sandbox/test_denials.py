"""The texts of the tables are what real programs put out in the sandbox; only directories were renamed."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ipybox.sandbox.denials import hints
from ipybox.sandbox.policy import Policy
from ipybox.sandbox.settings import SandboxSettings

SOURCE = "the settings test.json"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace beside a home with credentials, which the texts of the tables call `HOME`."""
    workspace = tmp_path / "workspace"
    for directory in (workspace / ".git" / "hooks", workspace / "secret" / "open", tmp_path / "home" / ".ssh"):
        directory.mkdir(parents=True)
    for file in (".env", "x.pem", "keep.txt", "a.txt", "secret/g", "secret/open/f", ".git/config"):
        (workspace / file).write_text("content of the file\n")
    (tmp_path / "home" / ".ssh" / "id_rsa").write_text("content of the file\n")
    (tmp_path / "home" / ".netrc").write_text("content of the file\n")
    (workspace / "link").symlink_to("../home/.ssh/id_rsa")
    return workspace


@pytest.fixture
def settings(workspace: Path) -> SandboxSettings:
    home = workspace.parent / "home"
    return SandboxSettings(
        source=SOURCE,
        deny_read=(f"{home}/.ssh", f"{home}/.netrc", ".env", "*.pem", "secret"),
        allow_read=("secret/open",),
        allow_write=(".",),
        deny_write=("keep.txt",),
    )


@pytest.fixture
def policy(settings: SandboxSettings, workspace: Path) -> Policy:
    return Policy(settings, workspace)


@pytest.fixture
def proxied(workspace: Path) -> Policy:
    allowed, denied = ("allowed.test", "*.ok.test"), ("bad.ok.test",)
    return Policy(SandboxSettings(source=SOURCE, allowed_domains=allowed, denied_domains=denied), workspace)


def refused(text: str, policy: Policy, *, macos: bool = False) -> list[str]:
    """What the hints say, up to the reason."""
    home = f"{policy.workspace.removesuffix('/workspace')}/home"
    found = hints(text.replace("HOME", home), policy, macos=macos)
    assert all(hint.startswith("The sandbox refused ") and "\n" not in hint for hint in found)
    return [hint.removeprefix("The sandbox refused ").replace(home, "HOME").split(": ")[0] for hint in found]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param("PermissionError: [Errno 13] Permission denied: '.env'", ".env", id="python"),
        pytest.param("PermissionError: [Errno 13] Permission denied: b'./.env'", "./.env", id="python_bytes"),
        pytest.param(
            "FileNotFoundError: [Errno 2] No such file or directory: 'HOME/.ssh/id_rsa'",
            "HOME/.ssh/id_rsa",
            id="python_directory",
        ),
        pytest.param("FileNotFoundError: [Errno 2] No such file or directory: 'link'", "link", id="python_link"),
        pytest.param("cat: HOME/.netrc: Permission denied", "HOME/.netrc", id="cat"),
        pytest.param("cat: .env: Permission denied", ".env", id="cat_relative"),
        pytest.param("cat: x.pem: Permission denied", "x.pem", id="cat_glob"),
        pytest.param("cat: secret/g: No such file or directory", "secret/g", id="cat_directory"),
        pytest.param("cat: link: No such file or directory", "link", id="cat_link"),
        pytest.param("head: cannot open 'HOME/.netrc' for reading: Permission denied", "HOME/.netrc", id="head"),
        pytest.param("cp: cannot open '.env' for reading: Permission denied", ".env", id="cp"),
        pytest.param("bash: line 1: HOME/.netrc: Permission denied", "HOME/.netrc", id="bash"),
        pytest.param("/usr/bin/bash: line 1: .env: Permission denied", ".env", id="bash_with_its_path"),
        pytest.param("sh: 1: cannot open HOME/.netrc: Permission denied", "HOME/.netrc", id="sh"),
        pytest.param("bash: line 1: ./.env: Permission denied", "./.env", id="bash_source"),
        pytest.param("sed: can't read .env: Permission denied", ".env", id="sed"),
        pytest.param("awk: cannot open .env (Permission denied)", ".env", id="awk"),
        pytest.param(".env: Permission denied (os error 13)", ".env", id="ripgrep"),
        pytest.param("dd: failed to open '.env': Permission denied", ".env", id="dd"),
        pytest.param("curl: (37) Couldn't open file HOME/.netrc", "HOME/.netrc", id="curl"),
        pytest.param("EACCES: permission denied, open 'HOME/.netrc'", "HOME/.netrc", id="node"),
        pytest.param(
            "ENOENT: no such file or directory, open 'HOME/.ssh/id_rsa'", "HOME/.ssh/id_rsa", id="node_directory"
        ),
        pytest.param("sh: 1: cannot create x.pem: Permission denied", "x.pem", id="writing_a_hidden_file"),
        pytest.param("\x1b[31mcat: .env: Permission denied\x1b[0m", ".env", id="colours"),
    ],
)
def test_a_file_that_was_hidden_is_named(policy: Policy, text: str, path: str):
    assert refused(f"first line\n{text}\nlast line\n", policy) == [f"to open {path}"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param("OSError: [Errno 30] Read-only file system: '/etc/x'", "/etc/x", id="python"),
        pytest.param("OSError: [Errno 30] Read-only file system: 'a.txt' -> '/etc/l'", "/etc/l", id="python_link"),
        pytest.param("OSError: [Errno 18] Invalid cross-device link: 'a.txt' -> '/etc/a'", "/etc/a", id="rename"),
        pytest.param("OSError: [Errno 30] Read-only file system: 'keep.txt'", "keep.txt", id="python_denied"),
        pytest.param("touch: cannot touch '/etc/x': Read-only file system", "/etc/x", id="touch"),
        pytest.param("bash: line 1: /etc/hosts: Read-only file system", "/etc/hosts", id="bash"),
        pytest.param("/usr/bin/bash: line 1: keep.txt: Read-only file system", "keep.txt", id="bash_with_its_path"),
        pytest.param("sh: 1: cannot create /etc/hosts: Read-only file system", "/etc/hosts", id="sh"),
        pytest.param("sh: 1: cannot create keep.txt: Read-only file system", "keep.txt", id="sh_denied"),
        pytest.param(
            "mkdir: cannot create directory ‘../out/a’: Read-only file system", "../out/a", id="mkdir_typographic"
        ),
        pytest.param("cp: cannot create regular file '/etc/a.txt': Read-only file system", "/etc/a.txt", id="cp"),
        pytest.param(
            "mv: inter-device move failed: 'a.txt' to '/etc/a'; unable to remove target: Read-only file system",
            "/etc/a",
            id="mv",
        ),
        pytest.param(
            "sed: couldn't open temporary file /etc/sedLabeVp: Read-only file system", "/etc/sedLabeVp", id="sed"
        ),
        pytest.param("tar: /etc/q.tar: Cannot open: Read-only file system", "/etc/q.tar", id="tar"),
        pytest.param("fatal: cannot mkdir /etc/g: Read-only file system", "/etc/g", id="git"),
        pytest.param(
            "error: could not lock config file /home/me/.gitconfig: Read-only file system",
            "/home/me/.gitconfig",
            id="git_config",
        ),
        pytest.param("/etc/q: Read-only file system", "/etc/q", id="wget"),
        pytest.param("Error: EROFS: read-only file system, open '/etc/x'", "/etc/x", id="node"),
        pytest.param("EROFS: read-only file system, copyfile 'a.txt' -> '/etc/b'", "/etc/b", id="node_copy"),
        pytest.param("OSError: [Errno 30] Read-only file system: '/etc/zz'", "/etc/zz", id="pip"),
        pytest.param(
            "sh: 1: cannot create .git/hooks/pre-commit: Read-only file system", ".git/hooks/pre-commit", id="hook"
        ),
        pytest.param("OSError: [Errno 30] Read-only file system: '.mcp.json'", ".mcp.json", id="protected"),
        pytest.param("PermissionError: [Errno 13] Permission denied: '.bashrc'", ".bashrc", id="protected_and_missing"),
    ],
)
def test_a_file_that_was_read_only_is_named(policy: Policy, text: str, path: str):
    assert refused(f"first line\n{text}\nlast line\n", policy) == [f"to write {path}"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param("mv: cannot move '.git/hooks' to '.git/h2': Device or resource busy", ".git/hooks", id="mv"),
        pytest.param("rm: cannot remove '.env': Device or resource busy", ".env", id="rm"),
        pytest.param("rmdir: failed to remove 'secret': Device or resource busy", "secret", id="rmdir"),
        pytest.param("OSError: [Errno 16] Device or resource busy: '.git' -> '.g'", ".git", id="python_parent"),
        pytest.param("EBUSY: resource busy or locked, rename '.git/hooks' -> '.git/h'", ".git/hooks", id="node"),
    ],
)
def test_what_could_not_be_moved_or_removed_is_named(policy: Policy, text: str, path: str):
    assert refused(text, policy) == [f"to move or remove {path}"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("PermissionError: [Errno 13] Permission denied: '/var/log/x'", id="other_permission"),
        pytest.param("PermissionError: [Errno 13] Permission denied: 'a.txt'", id="permission_in_the_workspace"),
        pytest.param("touch: cannot touch '/home/me/x': Permission denied", id="other_permission_to_write"),
        pytest.param("bash: line 1: ./a.txt: Permission denied", id="not_executable"),
        pytest.param("FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'", id="missing"),
        pytest.param("FileNotFoundError: [Errno 2] No such file or directory: '.env'", id="missing_file_of_deny_read"),
        pytest.param("FileNotFoundError: [Errno 2] No such file or directory: 'HOME/x'", id="missing_beside"),
        pytest.param(
            "FileNotFoundError: [Errno 2] No such file or directory: 'secret/open/x'", id="missing_in_allowed"
        ),
        pytest.param("/usr/bin/bash: line 1: x.txt: Read-only file system", id="path_of_the_shell"),
        pytest.param("OSError: [Errno 30] Read-only file system: 'a.txt'", id="read_only_itself"),
        pytest.param("OSError: [Errno 30] Read-only file system: '/proc/sys/x'", id="proc"),
        pytest.param("OSError: [Errno 16] Device or resource busy: 'a.txt'", id="busy"),
        pytest.param("OSError: [Errno 16] Device or resource busy: 'config'", id="name_without_its_directory"),
        pytest.param("OSError: [Errno 30] Read-only file system", id="no_path"),
        pytest.param("Permission denied", id="words"),
        pytest.param("No such file or directory, permission denied, read-only file system", id="more_words"),
        pytest.param("The .env file has no permissions, and secret/g is read-only.", id="paths_without_an_error"),
        pytest.param("----> 1 raise OSError(\"Permission denied: '.env'\")", id="ipython_code"),
        pytest.param("      2     fail('.env: Permission denied')", id="ipython_code_around"),
        pytest.param("    raise OSError('.env: Permission denied')", id="python_code"),
        pytest.param("mount: /mnt: Operation not permitted", id="other_operation"),
        pytest.param("PermissionError: [Errno 1] Operation not permitted", id="other_operation_without_a_path"),
        pytest.param("PermissionError: [Errno 13] Permission denied: '\\udc80\0'", id="no_path_at_all"),
        pytest.param("x" * 5000 + " cat: .env: Permission denied", id="line_of_data"),
        pytest.param("Temporary failure in name resolution", id="words_of_a_resolver"),
        pytest.param("log: Name or service not known, Network is unreachable", id="words_of_a_network"),
        pytest.param("ConnectionRefusedError: [Errno 111] Connection refused", id="refused_by_a_peer"),
        pytest.param(
            "HTTPConnectionPool(host='localhost', port=9): Max retries exceeded with url: / (Caused by "
            "NewConnectionError(\"HTTPConnection(host='localhost', port=9): Failed to establish a new connection: "
            '[Errno 111] Connection refused"))',
            id="loopback",
        ),
        pytest.param(
            "curl: (7) Failed to connect to localhost port 9 after 0 ms: Couldn't connect", id="curl_loopback"
        ),
        pytest.param("urllib.error.HTTPError: HTTP Error 403: Forbidden", id="answer_of_a_server"),
        pytest.param("http://example.org/\nrequests: 403 Client Error: Forbidden for url: x", id="no_proxy_to_forbid"),
    ],
)
def test_ordinary_errors_and_other_text_are_not_explained(policy: Policy, text: str):
    assert refused(text, policy) == []


def test_a_file_that_the_host_can_not_read_either_is_not_explained(workspace: Path, policy: Policy):
    (workspace / ".profile").symlink_to(workspace / "nothing")  # exists, and can't be read, even by root

    assert refused("cat: .profile: Permission denied", policy) == []


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
    ],
)
def test_a_host_that_was_refused_is_named(policy: Policy, text: str):
    assert hints(text, policy) == [
        f"The sandbox refused the network: example.org is not in network.allowedDomains of {SOURCE} "
        "(now: none). To open it, list it there, or in allowed_domains (--allow-domain)."
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("socket.gaierror: [Errno -3] Temporary failure in name resolution", id="resolver"),
        pytest.param("httpx2.ConnectError: [Errno -2] Name or service not known", id="other_resolver"),
        pytest.param("OSError: [Errno 101] Network is unreachable", id="address"),
        pytest.param(
            "see https://a.test and https://b.test\nsocket.gaierror: [Errno -3] Temporary failure in name resolution",
            id="more_than_one_host",
        ),
    ],
)
def test_without_a_host_the_network_is_explained(policy: Policy, text: str):
    assert hints(text, policy) == [
        f"The sandbox refused the network: only hosts in network.allowedDomains of {SOURCE} can be reached (now: none)."
    ]


def test_an_address_is_named_like_a_host(policy: Policy):
    text = (
        "HTTPConnectionPool(host='192.0.2.1', port=80): Max retries exceeded with url: / (Caused by NewConnectionError("
        "\"HTTPConnection(host='192.0.2.1', port=80): Failed to establish a new connection: "
        '[Errno 101] Network is unreachable"))'
    )

    assert "192.0.2.1 is not in network.allowedDomains" in hints(text, policy)[0]
    assert (
        "192.0.2.1 is not in network.allowedDomains"
        in hints("curl: (7) Failed to connect to 192.0.2.1 port 80 after 0 ms: Couldn't connect to server", policy)[0]
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(
            "HTTPSConnectionPool(host='example.org', port=443): Max retries exceeded with url: / (Caused by ProxyError("
            "'Unable to connect to proxy', OSError('Tunnel connection failed: 403 Forbidden')))",
            "example.org is not in",
            id="requests",
        ),
        pytest.param("URLError: <urlopen error Tunnel connection failed: 403 Forbidden>", "only hosts in", id="urllib"),
        pytest.param("httpx2.ProxyError: 403 Forbidden", "only hosts in", id="httpx"),
        pytest.param(
            "await s.get('https://example.org/')\n"
            "ClientHttpProxyError: 403, message='Forbidden', url='http://localhost:3128'",
            "example.org is not in",
            id="aiohttp",
        ),
        pytest.param("curl: (56) CONNECT tunnel failed, response 403", "only hosts in", id="curl"),
        pytest.param("Connection blocked by network allowlist", "only hosts in", id="plain_http"),
        pytest.param(
            "--2026-11-21 11:53:45--  https://example.org/\n"
            "Resolving localhost (localhost)... 127.0.0.1\n"
            "Connecting to localhost (localhost)|127.0.0.1|:3128... connected.\n"
            "Proxy tunneling failed: ForbiddenUnable to establish SSL connection.",
            "example.org is not in",
            id="wget",
        ),
        pytest.param(
            "fatal: unable to access 'https://example.org/a/b.git/': CONNECT tunnel failed, response 403",
            "example.org is not in",
            id="git",
        ),
        pytest.param(
            "2026/11/21 11:53:45 socat[39] E CONNECT example.org:22: Forbidden", "example.org is not in", id="git_ssh"
        ),
        pytest.param(
            "npm error 403 403 Forbidden - GET https://example.org/nothing-x", "example.org is not in", id="npm"
        ),
        pytest.param(
            "urlopen('http://example.org/')\nurllib.error.HTTPError: HTTP Error 403: Forbidden",
            "example.org is not in",
            id="urllib_plain_http",
        ),
        pytest.param(
            "socat[39] E CONNECT bad.ok.test:22: Forbidden", "network.deniedDomains of", id="denied_although_allowed"
        ),
        pytest.param(
            "socat[39] E CONNECT allowed.test:22: Forbidden", "allowed.test in network.allowedDomains", id="port"
        ),
        pytest.param(
            "Error: getaddrinfo EAI_AGAIN allowed.test", "allowed.test is reached only through", id="proxy_not_used"
        ),
    ],
)
def test_what_the_proxy_refused_is_explained(proxied: Policy, text: str, reason: str):
    [hint] = hints(text, proxied)

    assert hint.startswith(f"The sandbox refused the network: {reason} ")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("GET http://allowed.test/\nHTTP Error 403: Forbidden", id="answer_of_an_allowed_server"),
        pytest.param("GET http://localhost:8080/\nHTTP Error 403: Forbidden", id="answer_of_a_server_inside"),
        pytest.param("urllib.error.HTTPError: HTTP Error 403: Forbidden", id="answer_of_an_unknown_server"),
        pytest.param("http://a.test http://b.test\nHTTP Error 403: Forbidden", id="answer_of_any_server"),
    ],
)
def test_answers_of_servers_are_not_explained(proxied: Policy, text: str):
    assert hints(text, proxied) == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "----> 1 socket.socket(socket.AF_UNIX)\n\nPermissionError: [Errno 1] Operation not permitted", id="python"
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
def test_sockets_that_were_refused_are_explained(policy: Policy, text: str):
    assert refused(text, policy) == [
        "a socket",
    ]


def test_macos_has_its_own_error_for_files(policy: Policy):
    reading = "PermissionError: [Errno 1] Operation not permitted: 'HOME/.ssh/id_rsa'"
    writing = "touch: /etc/x: Operation not permitted"

    assert refused(f"{reading}\n{writing}", policy, macos=True) == ["to open HOME/.ssh/id_rsa", "to write /etc/x"]
    assert refused(f"{reading}\n{writing}", policy, macos=False) == []


def test_a_hint_names_the_entry_its_source_and_the_remedy(policy: Policy):
    ssh = f"{policy.workspace.removesuffix('/workspace')}/home/.ssh"

    assert hints(f"cat: {ssh}/id_rsa: No such file or directory", policy) == [
        f"The sandbox refused to open {ssh}/id_rsa: it is below {ssh}, which filesystem.denyRead of {SOURCE} "
        "names. To open it, list it in filesystem.allowRead, or give a sandbox_config without that entry."
    ]
    assert hints("cat: x.pem: Permission denied", policy) == [
        f"The sandbox refused to open x.pem: filesystem.denyRead of {SOURCE} names it (*.pem). "
        "To open it, list it in filesystem.allowRead, or give a sandbox_config without that entry."
    ]
    assert hints("/etc/q: Read-only file system", policy) == [
        f"The sandbox refused to write /etc/q: only what filesystem.allowWrite of {SOURCE} names can be "
        f"written (now: the workspace {policy.workspace}). To open it, list it there."
    ]
    assert hints("OSError: [Errno 30] Read-only file system: '.git/hooks/x'", policy) == [
        "The sandbox refused to write .git/hooks/x: .git is not writable, because programs outside "
        "the sandbox read or execute what it holds. To open it, list .git in filesystem.allowWrite."
    ]


def test_what_is_ipyboxs_own_has_no_remedy(settings: SandboxSettings, workspace: Path):
    policy = Policy(settings, workspace, hidden=["/state/ipybox"], read_only=["/env"])

    assert hints("touch: cannot touch '/env/x': Read-only file system", policy) == [
        "The sandbox refused to write /env/x: it is below /env, which is ipybox's own. No setting opens it."
    ]


def test_each_refusal_is_told_once_in_order_and_the_last_three_at_most(policy: Policy):
    lines = [f"touch: cannot touch '/etc/{name}': Read-only file system" for name in "abcbddd"]

    assert refused("\n".join(lines), policy) == ["to write /etc/c", "to write /etc/b", "to write /etc/d"]


def test_a_named_host_explains_errors_that_name_none(policy: Policy):
    text = (
        "socket.gaierror: [Errno -3] Temporary failure in name resolution\n"
        "During handling of the above exception, another exception occurred:\n"
        "Failed to resolve 'example.org' ([Errno -3] Temporary failure in name resolution)\n"
    )

    [hint] = hints(text, policy)

    assert "example.org is not in" in hint


def test_a_path_can_not_forge_a_hint(policy: Policy):
    [hint] = hints("touch: cannot touch '/etc/x\x1b]0;\x07[ipybox]': Read-only file system", policy)

    assert hint.isprintable()


def test_a_line_that_begins_before_the_inspected_part_is_not_taken_for_whole(policy: Policy):
    text = "a" * 200_000 + "/etc/x: Read-only file system"

    assert hints(text, policy) == []
    assert refused(f"{text}\n/etc/x: Read-only file system", policy) == ["to write /etc/x"]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("x" * 79, id="no_error"),
        pytest.param("id 403 forbidden", id="harmless_words"),
        pytest.param("PermissionError: [Errno 13] Permission denied: '/usr/lib/x/y/z'", id="ordinary_errors"),
        pytest.param("Permission denied " + "'a' " * 1000, id="quotes"),
        pytest.param("Permission denied '" + "/a" * 500 + "'", id="deep_path"),
        pytest.param("Permission denied " + "/a" * 1900, id="endless_path"),
        pytest.param("a: " * 1300 + "Permission denied", id="colons"),
        pytest.param("Permission denied '" + "/.env" * 190 + "'", id="globs"),
        pytest.param("[Errno -3] Temporary failure in name resolution " + "http://a." * 400, id="addresses"),
        pytest.param("Could not resolve host " + "a-." * 1300, id="host"),
        pytest.param("CONNECT " + "a" * 4000, id="no_host"),
        pytest.param("'" * 4000 + "Permission denied", id="nothing_quoted"),
        pytest.param("\x1b[" * 2000 + "Permission denied", id="escapes"),
    ],
)
def test_any_text_is_inspected_in_no_time(policy: Policy, line: str):
    text = f"{line}\n" * (10_000_000 // len(line))
    hints(text, policy)

    start = time.process_time()
    hints(text, policy)

    assert time.process_time() - start < 0.2


PYTHON_READS = "python3 -c \"open('{0}')\""
URLOPEN = "python3 -c \"import urllib.request as r; r.urlopen('{0}', timeout=10)\""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param("cat HOME/.ssh/id_rsa", ["to open HOME/.ssh/id_rsa"], id="cat_in_a_hidden_directory"),
        pytest.param("cat .env", ["to open .env"], id="cat_a_hidden_file"),
        pytest.param("cat link", ["to open link"], id="cat_a_link"),
        pytest.param("cat secret/open/f nothing", [], id="cat_what_is_allowed"),
        pytest.param(PYTHON_READS.format("x.pem"), ["to open x.pem"], id="python_reads_a_hidden_file"),
        pytest.param(PYTHON_READS.format("HOME/.ssh/id_rsa"), ["to open HOME/.ssh/id_rsa"], id="python_in_a_directory"),
        pytest.param(PYTHON_READS.format("nothing"), [], id="python_reads_nothing"),
        pytest.param("touch HOME/x", ["to write HOME/x"], id="touch_elsewhere"),
        pytest.param("echo x > keep.txt", ["to write keep.txt"], id="shell_writes_what_is_denied"),
        pytest.param("echo x > .git/hooks/pre-commit", ["to write .git/hooks/pre-commit"], id="shell_writes_a_hook"),
        pytest.param("echo x > .bashrc", ["to write .bashrc"], id="shell_writes_a_protected_name"),
        pytest.param("mv .git .g", ["to move or remove .git"], id="mv_a_repository"),
        pytest.param("cp a.txt HOME/; mkdir HOME/d", ["to write HOME/a.txt", "to write HOME/d"], id="cp_and_mkdir"),
        pytest.param("mv a.txt HOME/a.txt", ["to write HOME/a.txt"], id="mv_elsewhere"),
        pytest.param(URLOPEN.format("https://example.org"), ["the network"], id="python_opens_an_address"),
        pytest.param("python3 -c 'import socket; socket.socket(socket.AF_UNIX)'", ["a socket"], id="unix_socket"),
    ],
)
def test_what_srt_really_refuses_is_explained(
    settings: SandboxSettings, workspace: Path, command: str, expected: list[str]
):
    policy = Policy(settings, workspace)
    without_proxy = f"unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY; {command}"

    assert refused(run_in_srt(without_proxy, settings, workspace), policy) == expected


def test_what_the_proxy_of_srt_really_refuses_is_explained(proxied: Policy, workspace: Path):
    for name, address in (("first.py", "https://example.org"), ("second.py", "http://bad.ok.test")):
        (workspace / name).write_text(f"from urllib.request import urlopen\nurlopen('{address}', timeout=10)\n")
    command = "python3 first.py; python3 second.py"

    found = hints(run_in_srt(command, proxied.settings, workspace), proxied)

    assert [hint.split(": ")[1].split(" (now")[0] for hint in found] == [
        f"example.org is not in network.allowedDomains of {SOURCE}",
        f"network.deniedDomains of {SOURCE} names bad.ok.test.",
    ]


def run_in_srt(command: str, settings: SandboxSettings, workspace: Path) -> str:
    """Returns what a shell command puts out in the sandbox."""
    file = workspace.parent / "srt.json"
    content = {
        "filesystem": {
            "denyRead": settings.deny_read,
            "allowRead": settings.allow_read,
            "allowWrite": settings.allow_write,
            "denyWrite": settings.deny_write,
        },
        "network": {"allowedDomains": settings.allowed_domains, "deniedDomains": settings.denied_domains},
    }
    file.write_text(json.dumps(content))
    command = command.replace("HOME", str(workspace.parent / "home")).replace("python3", sys.executable)
    # srt leaves a socket there that is named by its process, and fails where another one left the same.
    with tempfile.TemporaryDirectory() as temporary:
        process = subprocess.run(
            ["srt", "--settings", str(file), "--", "bash", "-c", command],
            cwd=workspace,
            env={**os.environ, "TMPDIR": temporary},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
    return process.stdout
