"""Headless Chromium by its DevTools protocol: as much of it as the checks of the docs site need."""

import asyncio
import base64
import contextlib
import itertools
import os
import re
import shutil
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import aiohttp

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

#: Seconds until the browser listens, and until it answers a command.
START_TIMEOUT, COMMAND_TIMEOUT = 60, 60

#: Bytes of a message: a screenshot of a long page.
MAX_MESSAGE = 256 * 1024 * 1024

Event = dict[str, Any]


class Tab:
    """One tab: commands, and events in the order in which they arrive.

    Attributes:
        events: Called with the method and the parameters of each event.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.events: Callable[[str, Event], None] = lambda method, event: None
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Event]] = {}
        self._waiting: dict[str, list[asyncio.Future[Event]]] = {}

    async def call(self, method: str, **parameters: Any) -> Event:
        """Returns the result of a command.

        Raises:
            RuntimeError: If the browser reports an error.
        """
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        message = await asyncio.wait_for(answer, COMMAND_TIMEOUT)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        return message["result"]

    def event(self, method: str) -> asyncio.Future[Event]:
        """Returns what waits for the next event with this name."""
        waiter: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(method, []).append(waiter)
        return waiter

    async def open(self, address: str) -> None:
        """Opens an address, and waits until everything is loaded."""
        loaded = self.event("Page.loadEventFired")
        await self.call("Page.navigate", url=address)
        await asyncio.wait_for(loaded, COMMAND_TIMEOUT)

    async def evaluate(self, expression: str) -> Any:
        """Returns the value of an expression of JavaScript, after waiting for it if it is a promise.

        Raises:
            RuntimeError: If it throws.
        """
        done = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"]["exception"].get("description", "error"))
        return done["result"].get("value")

    async def save_screenshot(self, file: Path, width: int, height: int) -> None:
        """Saves the part of the page from its top left corner with this size as PNG."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        done = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(done["data"]))

    async def read(self) -> None:
        """Passes messages of the browser on until the connection ends."""
        async for received in self._socket:
            message = cast("Event", received.json())
            if "id" in message:
                self._answers.pop(message["id"]).set_result(message)
                continue
            method, event = message["method"], message["params"]
            self.events(method, event)
            for waiter in self._waiting.pop(method, []):
                waiter.set_result(event)


@contextlib.asynccontextmanager
async def chromium() -> AsyncGenerator[Tab]:
    """Starts a browser with a profile of its own, and ends it.

    Yields:
        Its tab.

    Raises:
        FileNotFoundError: If there is no browser.
    """
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise FileNotFoundError("no Chromium was found: install it, such as with `apt-get install chromium`")
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}", "--no-first-run"]
        options += ["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
        # Chromium's own sandbox refuses to start for root. The pages are our own.
        options += ["--no-sandbox"] if os.geteuid() == 0 else []
        process = await asyncio.create_subprocess_exec(program, *options, stderr=asyncio.subprocess.PIPE)
        try:
            host = await asyncio.wait_for(_address(process), START_TIMEOUT)
            async with aiohttp.ClientSession() as http, http.get(f"http://{host}/json/list") as listed:
                (target,) = (each for each in await listed.json() if each["type"] == "page")
                async with http.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=MAX_MESSAGE) as socket:
                    tab = Tab(socket)
                    reading = asyncio.create_task(tab.read())
                    yield tab
                    await socket.close()
                    await reading
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    """Returns the host and the port that the browser prints as soon as it listens."""
    assert process.stderr is not None
    async for line in process.stderr:
        if match := re.match(rb"DevTools listening on ws://([\d.:]+)/", line):
            return match[1].decode()
    raise RuntimeError("Chromium ended before it listened")
