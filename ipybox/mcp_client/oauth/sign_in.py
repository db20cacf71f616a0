"""Asks a person to sign in, by default in the user's browser: with `webbrowser`, which honors `$BROWSER`.

Cheap to import, unlike the rest of this package.
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
    """Logs the address for a sign-in, and opens it in the user's browser if there is one."""
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
