"""An application of the SDK that lies in the repository and is run there. It speaks as much MCP as `Session` does."""

import asyncio
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from ipybox import CodeExecutor, generate_mcp_sources
from ipybox.errors import IpyboxError

#: What comes from the code, in which it may say anything.
OF_CODE = ("text", "images", "image_data", "files", "outputs", "cell")


async def call(executor: CodeExecutor, tool: str, arguments: dict[str, Any]) -> list[str]:
    """Returns the blocks of a result."""
    match tool:
        case "execute_ipython_cell":
            result = await executor.execute(arguments["code"])
            others = [getattr(result, field.name) for field in fields(result) if field.name not in OF_CODE]
            return [result.text or "", *(str(other) for other in others if other)]
        case "register_mcp_server":
            return list(await generate_mcp_sources(**arguments, root_dir=Path("mcptools"), sign_in=None))
        case _:
            await executor.reset()
            return []


async def answer(executor: CodeExecutor, request: dict[str, Any]) -> None:
    """Answers a request on stdout."""
    failed = False
    try:
        texts = await call(executor, request["params"]["name"], request["params"]["arguments"])
    except (IpyboxError, TimeoutError, OSError, ValueError, RuntimeError) as exc:
        texts, failed = [str(exc)], True
    result = {"content": [{"type": "text", "text": text} for text in texts], "isError": failed}
    print(json.dumps({"id": request["id"], "result": result}), flush=True)


async def main() -> None:
    reader = asyncio.StreamReader(limit=1 << 26)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with CodeExecutor(sandbox=True, connect_timeout=10) as executor, asyncio.TaskGroup() as tasks:
        print(json.dumps({"id": 0, "result": {}}), flush=True)
        while line := await reader.readline():
            tasks.create_task(answer(executor, json.loads(line)))


if __name__ == "__main__":
    asyncio.run(main())
