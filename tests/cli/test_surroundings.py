"""What `ipybox doctor` says about MCP clients, proxies and certificates."""

import json
from pathlib import Path

import pytest

from ipybox.cli.doctor import network_findings
from tests.cli.test_parsing import run
from tests.sandbox.test_preflight import replace

ADD = "add ipybox with `ipybox install {}`, unless a plugin provides it"
OWN = '{"mcpServers": {"%s": {"command": "/x/ipybox", "args": ["serve"], "disabled": %s}}}'


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    for name in ("bin", "home", "workspace"):
        (tmp_path / name).mkdir()
    return tmp_path


def clients(machine: Path, *, path: str = "") -> dict[str, dict[str, str | None]]:
    """Returns what a doctor in the workspace finds about clients, by their name."""
    home = machine / "home"
    places = dict.fromkeys(("XDG_CONFIG_HOME", "CODEX_HOME", "COPILOT_HOME", "CLAUDE_CONFIG_DIR"), "")
    done = run(
        "doctor", "--json", cwd=machine / "workspace", HOME=str(home), PATH=path or str(machine / "bin"), **places
    )
    findings = json.loads(done.stdout)["other"]["findings"]
    return {each.pop("what"): each for each in findings if each["what"] not in ("uv", "certificates", "proxy")}


@pytest.mark.kernel
def test_each_installed_client_has_a_line_that_says_how_to_add_ipybox(machine: Path):
    programs, home = machine / "bin", machine / "home"
    started = machine / "started"
    replace(programs, "claude", "echo '2.1.332 (Claude Code)'")
    replace(programs, "codex", "echo codex-cli 0.169.0")
    replace(programs, "gemini", "echo 0.61.0")
    replace(programs, "cline", "echo 3.0.1")
    replace(programs, "qwen", "echo no node >&2; exit 3")
    (home / ".claude.json").write_text(OWN % ("boxes", "false"))
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(f"[mcp_servers.other]\ncommand = '/bin/touch'\nargs = ['{started}']\n")
    (home / ".gemini").mkdir()
    (home / ".gemini/settings.json").write_text(OWN % ("ipybox", "true"))
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text("{")

    found = clients(machine)

    assert list(found) == ["claude-code", "codex", "gemini", "qwen", "cline", "cursor", "client files"]
    assert found["claude-code"] == {
        "found": f"2.1.332 ({programs}/claude), with ipybox",
        "problem": None,
        "remedy": None,
    }
    assert found["codex"]["found"] == f"0.169.0 ({programs}/codex), without ipybox"
    assert found["cline"] == {"found": f"3.0.1 ({programs}/cline)", "problem": None, "remedy": None}
    assert found["qwen"]["problem"] == "qwen is broken: it exited with 3: no node"
    for name in ("codex", "gemini", "cursor"):
        assert (found[name]["problem"], found[name]["remedy"]) == (None, ADD.format(name))
    assert str(found["client files"]["problem"]).startswith(f"can't read {home}/.cursor/mcp.json: ")
    assert not started.exists()


@pytest.mark.kernel
def test_a_client_that_code_in_the_workspace_could_replace_is_not_run(machine: Path):
    started = machine / "started"
    (machine / "workspace/bin").mkdir()
    replace(machine / "workspace/bin", "codex", f"echo x > {started}")

    found = clients(machine, path=f"{machine}/workspace/bin")

    assert list(found) == ["claude-code"]
    assert found["claude-code"]["problem"] == "claude is not on PATH"
    assert not started.exists()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({}, [], id="none"),
        pytest.param(
            {"https_proxy": "http://ann:p@ss@proxy:8080"}, ["proxy: proxy:8080 (https_proxy)"], id="no_password"
        ),
        pytest.param(
            {"HTTP_PROXY": "http://proxy:80"},
            [
                "HTTP_PROXY is set, but downloads use https, which it doesn't cover: "
                'run `export HTTPS_PROXY="$HTTP_PROXY"`'
            ],
            id="http_only",
        ),
        pytest.param(
            {"SSL_CERT_FILE": "{root}/a b.pem"},
            [
                "Node.js doesn't use the certificates in {root}/a b.pem: "
                "run `export NODE_EXTRA_CA_CERTS='{root}/a b.pem'`"
            ],
            id="node",
        ),
        pytest.param(
            {"CURL_CA_BUNDLE": "{root}/ca.pem", "NODE_EXTRA_CA_CERTS": "{root}/ca.pem"},
            ["uv doesn't use the certificates in {root}/ca.pem: run `export SSL_CERT_FILE={root}/ca.pem`"],
            id="uv",
        ),
        pytest.param(
            {"SSL_CERT_FILE": "{root}/ca.pem", "NODE_EXTRA_CA_CERTS": "{root}/ca.pem"},
            ["certificates: {root}/ca.pem"],
            id="complete",
        ),
        pytest.param(
            {"NODE_EXTRA_CA_CERTS": "{root}/no.pem"},
            [
                "NODE_EXTRA_CA_CERTS is {root}/no.pem, which can't be read: "
                "correct it, or run `unset NODE_EXTRA_CA_CERTS`"
            ],
            id="unreadable",
        ),
    ],
)
def test_proxies_and_certificates_that_variables_name(tmp_path: Path, variables: dict[str, str], expected: list[str]):
    for name in ("a b.pem", "ca.pem"):
        (tmp_path / name).touch()
    environ = {name: value.format(root=tmp_path) for name, value in variables.items()}

    found = [str(each) for each in network_findings(environ, tmp_path)]

    assert found == [line.format(root=tmp_path) for line in expected]


@pytest.mark.parametrize(
    ("place", "bundle"),
    [
        ("usr/local/share/ca-certificates", "etc/ssl/certs/ca-certificates.crt"),
        ("etc/pki/ca-trust/source/anchors", "etc/pki/tls/certs/ca-bundle.crt"),
    ],
)
def test_authorities_that_an_administrator_added_are_for_uv_and_node(tmp_path: Path, place: str, bundle: str):
    (tmp_path / place).mkdir(parents=True)
    assert network_findings({}, tmp_path) == []

    (tmp_path / place / "company.crt").touch()

    assert [str(each) for each in network_findings({}, tmp_path)] == [
        f"uv doesn't use the certificates in {tmp_path / bundle}: run `export UV_SYSTEM_CERTS=1`",
        f"Node.js doesn't use the certificates in {tmp_path / bundle}: "
        f"run `export NODE_EXTRA_CA_CERTS={tmp_path / bundle}`",
    ]
    (known,) = network_findings({"UV_NATIVE_TLS": "1", "NODE_USE_SYSTEM_CA": "1"}, tmp_path)
    assert known.problem is None
