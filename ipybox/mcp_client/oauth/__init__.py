"""Sign-ins to remote MCP servers with OAuth 2.1, following MCP's authorization specification.

The SDK implements the protocol (discovery, registration, PKCE, the grants). This package implements the rest: what is
stored where (`store`), how a person signs in (here and in `callback`), and when each step happens (`authenticator`).

https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization

This module is cheap to import, unlike the others.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ipybox.support.printable import printable

logger = logging.getLogger(__name__)

#: Shows a person the URL at which to sign in; returns when it is shown.
SignIn = Callable[[str], Awaitable[None]]

_OPEN = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"
# Seconds to wait for a browser to be found. Some commands run as long as their browser.
_TIMEOUT = 5.0


class SignInError(Exception):
    """A sign-in failed, or is needed where no person can be asked; the message says why, and what to do."""


async def open_in_browser(url: str) -> None:
    """Logs the address for a sign-in, and opens it in the user's browser if there is one (`webbrowser`, `$BROWSER`)."""
    logger.warning("sign in at %s", printable(url))
    # In a separate process, because stdin and stdout carry MCP messages. Without TERM, because `webbrowser` could
    # otherwise choose a text browser, which needs stdin and stdout.
    browser = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", _OPEN, url),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name != "TERM"},
        start_new_session=True,
    )
    with suppress(TimeoutError):
        async with asyncio.timeout(_TIMEOUT):
            await browser.wait()
