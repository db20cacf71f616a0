"""The MCP tool result of an execution, as `code_exec.model_output` describes it, with differences for some clients."""

import asyncio
import logging
from dataclasses import asdict

from mcp_types import CallToolResult, TextContent
from pydantic_core import from_json

from ipybox.code_exec.model_output import MARK, ModelText, content_blocks, failure_text, model_images, model_text
from ipybox.mcp_server import Images
from ipybox.mcp_server.client_traits import OTHERS, ClientTraits
from ipybox.mcp_server.outputs import OutputStore, output_uri
from ipybox.support.errors import CodeExecutionError, ExecutionTimeoutError
from ipybox.support.outputs import ExecutionOutput
from ipybox.support.printable import printable

logger = logging.getLogger(__name__)

#: Longer texts are processed in a thread.
SHORT = 10_000

#: The metadata of a result that lists what a failed cell called.
CALLS = "ipybox/calls"


class ToolResultBuilder:
    """Builds the tool results of executions; the store receives the full text of truncated outputs."""

    def __init__(self, store: OutputStore, images: Images = "both"):
        self._store = store
        self._images: Images = images

    async def result(
        self, outcome: ExecutionOutput | Exception, max_chars: int, client: ClientTraits = OTHERS
    ) -> CallToolResult:
        """Returns the result of an execution or of its failure, with output of up to `max_chars` characters."""
        failure = outcome if isinstance(outcome, Exception) else None
        known: ExecutionOutput | None = getattr(outcome, "output", None) if isinstance(outcome, Exception) else outcome
        output = known or ExecutionOutput(None, [])
        asked = output.image_data if self._images != "link" and client.shows_images else []
        images = await asyncio.to_thread(model_images, asked) if asked else []
        arguments = (output.text or "", failure, max_chars)
        # Starting a thread takes longer than processing a short text.
        short = len(arguments[0]) + (0 if failure is None else len(str(failure))) <= SHORT
        text = model_text(*arguments) if short else await asyncio.to_thread(model_text, *arguments)
        notices = [] if text.omission is None else [await self._save(text, resources=client.reads_resources)]
        blocks = content_blocks(text.shown, output, notices, images, links=self._images != "inline")
        if client.joins_texts and [block["type"] for block in blocks[:2]] == ["text", "text"]:
            marked = any(block["text"].startswith(MARK) for block in blocks[:2])
            blocks[1]["text"] = f"\n{blocks[1]['text']}" if marked else f"\n{MARK}\n{blocks[1]['text']}"
        if client.parses_texts and "text" in blocks[0] and _is_json_value(blocks[0]["text"]):
            blocks[0]["text"] = f"Output: {blocks[0]['text']}"
        # Not as structured content, which some clients pass to the model instead of the text.
        calls = outcome.calls if isinstance(outcome, CodeExecutionError | ExecutionTimeoutError) else ()
        meta = {CALLS: [asdict(each) for each in calls]} if calls else None
        return CallToolResult.model_validate({"content": blocks, "isError": failure is not None, "_meta": meta})

    async def _save(self, text: ModelText, *, resources: bool) -> str:
        """Saves the full text, of which the shown one is a part, and returns a notice with its file."""
        omission = f"{text.omission} " if text.omission else ""
        try:
            name = await asyncio.to_thread(self._store.save, text.whole)
        except OSError as exc:
            logger.warning("can't save the full output: %s", exc)
            return f"{omission}The full output can't be saved: {exc}"
        file = self._store.path(name)
        place = f"{output_uri(name)}, file {printable(file)}" if resources else printable(file)
        return f"{omission}Full output: {place}"


def _is_json_value(text: str) -> bool:
    """Returns whether a text is JSON, but no object."""
    try:
        return not isinstance(from_json(text), dict)
    except ValueError:
        return False


def failure_result(failure: Exception) -> CallToolResult:
    """Returns the tool result of a call that failed."""
    return CallToolResult(content=[TextContent(text=failure_text(failure))], is_error=True)
