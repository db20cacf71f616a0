"""The trusted certificate authorities are loaded once for each setting of the environment."""

import ssl
from pathlib import Path

import pytest

from ipybox.mcp_client.http import trusted_authorities


def test_authorities_are_loaded_again_only_if_the_environment_names_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    usual = trusted_authorities()
    assert usual.verify_mode is ssl.CERT_REQUIRED
    assert usual.check_hostname
    assert trusted_authorities() is usual

    missing = tmp_path / "authorities.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(missing))
    with pytest.raises(FileNotFoundError):
        trusted_authorities()

    monkeypatch.delenv("SSL_CERT_FILE")
    assert trusted_authorities() is usual
