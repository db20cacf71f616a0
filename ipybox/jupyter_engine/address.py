"""The address of a Jupyter server: its URL, token and certificate authority, checked before anything is sent."""

import ipaddress
import re
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from ipybox.support.endpoint import Endpoint

#: What an HTTP header can hold after the word `token`.
TOKEN = re.compile(r"[\x21-\x7e]+")


def server_endpoint(url: str, token: str | None, ca: Path | str | None) -> Endpoint:
    """Returns the endpoint of a Jupyter server.

    Args:
        url: Its URL, with the path that all its addresses begin with, such as `https://hub.example.org/user/me`.
        token: Its token, if it needs one.
        ca: A file with the certificates of authorities in PEM format; by default, those of the system are trusted.

    Raises:
        OSError: If the file can't be read.
        ValueError: If the URL can't be that of a Jupyter server, contains a secret, or is not encrypted and not on this
            machine, or the file contains no certificate.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("gateway_url is not a URL: pass one such as https://jupyter.example.org") from None
    if parts.username is not None or parts.query or parts.fragment:  # what may be a token is not shown
        raise ValueError("gateway_url can only have a host, a port and a path: pass a token as gateway_token")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"gateway_url {url!r} is not the URL of a server: pass one such as https://jupyter.example.org"
        )
    if token is not None and not TOKEN.fullmatch(token):
        raise ValueError("gateway_token can't be a token: it is empty, or contains spaces or control characters")
    tls = _tls(parts.scheme, parts.hostname, ca)
    return Endpoint(
        "kernel-gateway",
        parts.hostname,
        port or (80 if tls is None else 443),
        token or "",
        tls=tls,
        base_path=parts.path.rstrip("/"),
    )


def _tls(scheme: str, host: str, ca: Path | str | None) -> ssl.SSLContext | None:
    if scheme == "https":
        try:
            return ssl.create_default_context(cafile=None if ca is None else str(ca))
        except ssl.SSLError as exc:
            raise ValueError(f"gateway_ca: {ca} contains no certificate in PEM format") from exc
    if ca is not None:
        raise ValueError("gateway_ca is given, but gateway_url has no TLS: pass one that begins with https://")
    if not _is_loopback(host):
        raise ValueError(
            "gateway_url begins with http://, so anybody on the way could read the token and change the code: use "
            "https://, or a tunnel to a port of this machine"
        )
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
