"""The state that ipybox expects from an authorization server, whatever that has in its own address."""

import pytest

from ipybox.mcp_client.oauth import SignInError
from ipybox.mcp_client.oauth.callback import CallbackServer


async def test_state_in_the_address_of_the_authorization_server_does_not_count():
    callback = CallbackServer()
    callback.expect("https://a.b/c?state=x&state=own")
    assert callback._handle_response({"state": "x", "code": "1"})[0] == 400  # pyright: ignore[reportPrivateUsage]
    assert callback._handle_response({"state": "own", "code": "1"})[0] == 200  # pyright: ignore[reportPrivateUsage]


async def test_address_with_a_fragment_is_refused():
    with pytest.raises(SignInError, match="fragment"):
        CallbackServer().expect("https://a.b/c#?state=own")
