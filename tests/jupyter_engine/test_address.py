"""Addresses of Jupyter servers, and options that don't go with one."""

from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutor
from ipybox.jupyter_engine.address import server_endpoint


def test_a_path_and_the_port_of_the_scheme_are_part_of_the_address() -> None:
    endpoint = server_endpoint("https://hub.example.org/user/me/", "t", None)

    assert (endpoint.url, endpoint.base_path) == ("https://hub.example.org:443/user/me", "/user/me")
    assert server_endpoint("http://[::1]:8888", None, None).url == "http://[::1]:8888"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://jupyter.example.org", "anybody on the way could read the token"),
        ("http://127.0.0.1.example.org", "anybody on the way could read the token"),
        ("https://hidden@example.org", "pass a token as gateway_token"),
        ("https://example.org/?token=hidden", "pass a token as gateway_token"),
        ("ftp://example.org", "is not the URL of a server"),
        ("example.org:8888", "is not the URL of a server"),
        ("https://example.org:port", "is not a URL"),
    ],
)
def test_an_address_that_is_not_possible_is_an_error_without_secrets(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        server_endpoint(url, "secret", None)

    assert "hidden" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_token_or_ca_that_is_not_possible(tmp_path: Path) -> None:
    for token in ("", "two words", "line\nfeed", "é"):
        with pytest.raises(ValueError, match="gateway_token can't be a token"):
            server_endpoint("https://example.org", token, None)
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(ValueError, match="contains no certificate"):
        server_endpoint("https://example.org", None, tmp_path / "ca.pem")
    with pytest.raises(FileNotFoundError):
        server_endpoint("https://example.org", None, tmp_path / "missing.pem")
    with pytest.raises(ValueError, match="has no TLS"):
        server_endpoint("http://localhost", None, tmp_path / "ca.pem")


@pytest.mark.parametrize(
    "options",
    [{"sandbox": True}, {"memory_limit": 1 << 30}, {"approve_shell_cmds": True}, {"display_data": True}],
)
def test_options_of_this_machine_do_not_apply(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} does not apply to kernels of a Jupyter server"):
        CodeExecutor(gateway_url="https://example.org", **options)


def test_options_of_a_server_need_one() -> None:
    with pytest.raises(ValueError, match="kernel_id is for kernels of a Jupyter server"):
        CodeExecutor(kernel_id="x")
    with pytest.raises(ValueError, match="can't be the id of a kernel"):
        CodeExecutor(gateway_url="https://example.org", kernel_id="../x")
