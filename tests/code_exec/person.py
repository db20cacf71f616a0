"""A person's Jupyter client, as plain requests to the address that `attach` gives."""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from ipybox.kernel_mgr.attach.relay import KernelRelay
from tests.servers import WAIT


class Person:
    """A client that is connected to the kernel."""

    def __init__(self, http: aiohttp.ClientSession, kernel_id: str, websocket: aiohttp.ClientWebSocketResponse):
        self.http = http
        self.kernel = f"/api/kernels/{kernel_id}"
        self.websocket = websocket

    async def send(self, msg_type: str, channel: str = "shell", **content: Any) -> str:
        msg_id = uuid.uuid4().hex
        header = {"msg_id": msg_id, "msg_type": msg_type, "session": "person", "username": "", "version": "5.3"}
        await self.websocket.send_str(json.dumps({"channel": channel, "header": header, "content": content}))
        return msg_id

    async def execute(self, code: str, **options: Any) -> str:
        content: dict[str, Any] = {
            "code": code,
            "silent": False,
            "store_history": True,
            "allow_stdin": False,
            "stop_on_error": True,
        }
        return await self.send("execute_request", "shell", **{**content, **options})

    async def until(self, msg_type: str, msg_id: str | None = None, **content: Any) -> dict[str, Any]:
        """Returns the next message of this type, about this request, with this content."""
        async with asyncio.timeout(WAIT):
            while True:
                message: dict[str, Any] = await self.websocket.receive_json()
                if (
                    message["msg_type"] == msg_type
                    and (msg_id is None or message["parent_header"].get("msg_id") == msg_id)
                    and content.items() <= message["content"].items()
                ):
                    return message


def requests(relay: KernelRelay, **headers: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(relay.url, headers=headers or {"Authorization": f"token {relay.token}"})


@asynccontextmanager
async def person_with(url: str, token: str) -> AsyncGenerator[Person]:
    http = aiohttp.ClientSession(url, headers={"Authorization": f"token {token}"})
    async with http, http.get("/api/kernels") as answer:
        kernel_id = (await answer.json())[0]["id"]
        async with http.ws_connect(f"/api/kernels/{kernel_id}/channels") as websocket:
            yield Person(http, kernel_id, websocket)


@asynccontextmanager
async def person_at(relay: KernelRelay) -> AsyncGenerator[Person]:
    async with person_with(relay.url, relay.token) as person:
        yield person
