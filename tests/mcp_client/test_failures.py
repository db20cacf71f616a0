"""What errors of the network mean that can't be caused on this machine."""

import errno

import httpx2
import pytest

from ipybox.mcp_client.failures import failure_text

UNREACHABLE = httpx2.ConnectError("All connection attempts failed")
UNREACHABLE.__cause__ = ExceptionGroup("", [OSError(errno.EHOSTUNREACH, "No route to host")])


@pytest.mark.parametrize(
    ("exc", "text"),
    [
        (httpx2.ConnectTimeout(""), "no connection within 5 s"),
        (UNREACHABLE, "can't connect: All connection attempts failed"),
        (httpx2.WriteTimeout(""), "it stopped reading the request"),
        (httpx2.ReadError(""), "the connection broke"),
        (httpx2.ReadError("peer reset"), "peer reset"),
    ],
    ids=["timeout", "unreachable", "unread", "broken", "named"],
)
def test_an_error_of_the_network_is_told_in_plain_words(exc: Exception, text: str):
    assert failure_text(exc, 5) == text
