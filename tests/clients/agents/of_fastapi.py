"""The endpoint of FastAPI behind a real socket, with a client that decides on tool calls.

    python of_fastapi.py '["x = 41", …]'

It prints the events of each cell as JSON.
"""

import asyncio
import json
import socket
import sys
from typing import Any

import httpx2
import uvicorn
from fastapi_endpoint import app


async def main(cells: list[str]) -> None:
    """Serves, executes and prints."""
    sock = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    serving = asyncio.create_task(server.serve([sock]))
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    async with httpx2.AsyncClient(base_url=url, timeout=60) as http:
        print(json.dumps([await events_of(http, code) for code in cells]))
        unknown = await http.post("/approvals/unknown", json={"accept": True})
        assert unknown.status_code == 404
    server.should_exit = True
    await serving


async def events_of(http: httpx2.AsyncClient, code: str) -> list[dict[str, Any]]:
    """Executes a cell as a browser does: it reads line by line, and accepts what costs less than 100."""
    events: list[dict[str, Any]] = []
    async with http.stream("POST", "/cells", json={"code": code}) as response:
        async for line in response.aiter_lines():
            event = json.loads(line)
            if "id" in event:
                accept = "amount=5)" in event["approve"]
                (await http.post(f"/approvals/{event.pop('id')}", json={"accept": accept})).raise_for_status()
            events.append(event)
    return events


asyncio.run(main(json.loads(sys.argv[1])))
