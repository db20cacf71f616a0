"""The certificate authorities that connections to remote MCP servers and authorization servers trust.

Loading them takes 20 ms, more than the rest of a connection to a server on this machine. httpx2 would load them for
each client, also for a URL without TLS. They are loaded once, and again when the environment names others.
"""

import os
import ssl
from functools import cache

import httpx2


def trusted_authorities() -> ssl.SSLContext:
    """Returns the TLS settings of httpx2, which all clients share."""
    return _loaded(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _loaded(_file: str | None, _directory: str | None) -> ssl.SSLContext:
    return httpx2.create_ssl_context()
