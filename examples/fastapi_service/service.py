"""A service that runs cells, and whose clients decide on tool calls.

    uvicorn --app-dir examples/fastapi_service service:app
    curl --no-buffer --json @cell.json localhost:8000/cells
    curl --json '{"accept": true}' localhost:8000/approvals/ID

A cell is a request, `{"code": "…"}`, and its answer is a stream of JSON lines. A line with an `id` is a tool call that
waits for a decision, as that of `from mcptools.app import pay; pay.run(pay.Params(customer="ada", amount=5))`.

Any client that reaches it can run code: keep it on 127.0.0.1, or put authentication of your own in front of it.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from ipybox import ApprovalRequest, CodeExecutionChunk, CodeExecutionResult, CodeExecutor
from ipybox.errors import ApprovalExpiredError


class Cell(BaseModel):
    """The code of a cell."""

    code: str


class Decision(BaseModel):
    """A decision on a tool call."""

    accept: bool


def pay(customer: str, amount: int) -> str:
    """Pays an amount to a customer."""
    return f"paid {amount} to {customer}"


#: What code may call, after approval; MCP servers are registered with `generate_mcp_sources`.
executor = CodeExecutor(tools=[pay])
pending: dict[str, ApprovalRequest] = {}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Runs the executor as long as the application."""
    async with executor:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/cells")
async def run_cell(cell: Cell) -> StreamingResponse:
    """Executes a cell, and streams what happens. It is interrupted if the client disconnects."""
    return StreamingResponse(lines(cell.code), media_type="application/x-ndjson")


@app.post("/approvals/{request_id}")
async def decide(request_id: str, decision: Decision) -> None:
    """Accepts or rejects a tool call."""
    request = pending.pop(request_id, None)
    if request is None:
        raise HTTPException(404, "no tool call waits under this name")
    try:
        await (request.accept() if decision.accept else request.reject("the user declined"))
    except ApprovalExpiredError as error:
        raise HTTPException(410, str(error)) from error


async def lines(code: str) -> AsyncGenerator[str]:
    """Yields the events of a cell."""
    asked: list[str] = []
    try:
        async with aclosing(executor.stream(code, chunks=True, raise_errors=False)) as stream:
            async for item in stream:
                if isinstance(item, ApprovalRequest):
                    asked.append(item.id)
                    pending[item.id] = item
                yield json.dumps(event_of(item)) + "\n"
    finally:
        for request_id in asked:
            pending.pop(request_id, None)


def event_of(item: ApprovalRequest | CodeExecutionChunk | CodeExecutionResult) -> dict[str, Any]:
    """Returns what the client gets of an item of the stream."""
    match item:
        case ApprovalRequest():
            return {"approve": str(item), "id": item.id}
        case CodeExecutionChunk():
            return {"text": item.text}
        case CodeExecutionResult():
            return {"done": True, "notices": item.notices} if item.error is None else {"error": str(item.error)}
