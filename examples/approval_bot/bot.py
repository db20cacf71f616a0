"""A bot that asks in a chat before code acts: `python bot.py`, then answer `yes 1` or `no 1 too expensive`.

The chat is the terminal. For another one, write a class with the methods of `Terminal`.
"""

import asyncio
import tempfile
import threading
from collections.abc import AsyncGenerator
from itertools import count

from ipybox import ApprovalRequest, CodeExecutor
from ipybox.errors import ApprovalExpiredError

CODE = """
from ipybox.tool_exec.client import ToolRunnerError
from mcptools.app import order

for item, quantity in {"paper": 5, "printer": 1}.items():
    try:
        print(order.run(order.Params(item=item, quantity=quantity)))
    except ToolRunnerError as error:
        print(f"not ordered: {error}")
"""

GONE = "nobody is in the chat"


def order(item: str, quantity: int) -> str:
    """Orders an item."""
    return f"ordered {quantity} x {item}"


class Terminal:
    """A chat with one person."""

    async def post(self, text: str) -> None:
        """Sends a message."""
        print(text, flush=True)

    async def messages(self) -> AsyncGenerator[str]:
        """Yields the messages of the person, until the end of stdin."""
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read() -> None:
            with open(0, "rb", buffering=0, closefd=False) as stdin:
                while line := stdin.readline():
                    loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, b"")

        # A thread, because an event loop can't wait for files; a daemon, because it may still wait when the bot ends.
        threading.Thread(target=read, daemon=True).start()
        while line := await lines.get():
            yield line.decode()


async def listen(chat: Terminal, waiting: dict[str, ApprovalRequest]) -> None:
    """Decides on the requests that wait, as the messages say."""
    async for message in chat.messages():
        answer, number, reason = [*message.split(maxsplit=2), "", "", ""][:3]
        request = waiting.pop(number, None) if answer in ("yes", "no") else None
        try:
            if request is None:
                await chat.post(f"I wait for {', '.join(waiting) or 'nothing'}. Answer `yes 1` or `no 1 reason`.")
            elif answer == "yes":
                await request.accept()
            else:
                await request.reject(reason.strip() or "declined in the chat")
        except ApprovalExpiredError as error:
            await chat.post(f"{number}: {error}")
    for request in waiting.values():
        await request.reject(GONE)


async def main(chat: Terminal) -> None:
    """Runs a cell, and posts its requests and its output."""
    waiting: dict[str, ApprovalRequest] = {}
    numbers = count(1)
    listener = asyncio.create_task(listen(chat, waiting))
    # A request that is not answered in ten minutes fails.
    async with CodeExecutor(working_dir=tempfile.mkdtemp(), tools=[order], approval_timeout=600) as executor:
        async for item in executor.stream(CODE, timeout=None):
            if isinstance(item, ApprovalRequest) and listener.done():
                await item.reject(GONE)
            elif isinstance(item, ApprovalRequest):
                waiting[number := str(next(numbers))] = item
                await chat.post(f"{number}: may I call {item}?")
            else:
                await chat.post(item.text or "(no output)")
    listener.cancel()


if __name__ == "__main__":
    asyncio.run(main(Terminal()))
