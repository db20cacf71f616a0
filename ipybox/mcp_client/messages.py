"""Reads messages from MCP servers over every transport, including messages that violate JSON-RPC.

The SDK drops a reply that it can't read, and the call would wait forever. So a reply whose request is known always ends
that request: it is repaired if its meaning is clear, or else replaced by an error that quotes the server. Reading takes
linear time.
"""

import codecs
import json
import re
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import Any, cast

from mcp_types import INTERNAL_ERROR, PARSE_ERROR, RequestId, jsonrpc_message_adapter
from pydantic_core import from_json, to_json

from ipybox.support.bounded_json import LARGE_BYTES
from ipybox.support.gc_pause import gc_paused

#: A message as it is on the wire.
Wire = dict[str, Any]

#: Returns the SDK's form of a message, or raises a ValueError if it is not a message.
validated = partial(jsonrpc_message_adapter.validate_python, by_name=False)

#: Maximum number of messages in a batch. The rest is dropped: no server needs so many, and a million takes seconds.
MAX_BATCH = 1000

#: In larger lines or events, a server's requests lose their parameters, which ipybox does not need, and are dropped if
#: they have long ids: many can wait until the server reads the replies.
MAX_REQUEST_BYTES = 1 << 16
_MAX_ID = 1000

#: The notification that ipybox needs. Others are dropped: the SDK copies their parameters, and logs malformed ones.
TOOLS_CHANGED = "notifications/tools/list_changed"

#: Maximum bytes of JSON that is repaired: that takes seconds and twenty times the memory for the largest messages.
MAX_REPAIRED = 4 << 20

#: Maximum characters of a malformed reply that its error quotes.
EXCERPT = 500

# The id of a reply that is not JSON is found at its start, or at its end, where JavaScript servers write it. The
# repetitions are possessive: they never backtrack.
_TAIL = 1000
_ID = rb'"id"\s*+:\s*+(?P<id>-?\d{1,18}(?![\d.eE])|"[^"\\]{0,200}")'
_VERSION = rb'"jsonrpc"\s*+:\s*+"2\.0"'
_BEFORE = rb"(?:%b\s*+,\s*+)?" % _VERSION
_FIRST_ID = re.compile(rb'\{\s*+%b%b\s*+,\s*+%b"(?:result|error)"' % (_BEFORE, _ID, _BEFORE))
_LAST_ID = re.compile(rb"%b\s*+,\s*+%b\s*+\}\s*+\Z" % (_VERSION, _ID))


def read_messages(data: bytes, default_id: RequestId | None = None) -> list[Wire]:
    """Returns the messages in a line or an event that ipybox needs: one, or several of a batch, or none.

    Replies without an id get `default_id`.

    Raises:
        ValueError: If there is no message, or the id of a reply can't be read.
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        value = _parsed(data) if len(data) <= LARGE_BYTES else _parsed_at_once(data)
    except (ValueError, RecursionError) as exc:
        return [_salvaged(data, exc)]
    items = cast("list[Any]", value)[:MAX_BATCH] if isinstance(value, list) else [value]
    found = [*filter(None, map(_repaired, items, repeat(default_id)))]
    if not found:
        raise ValueError("not JSON-RPC")
    if len(found) > 1 or "method" in found[0]:
        found = [*filter(None, map(_needed, found, repeat(len(data) > MAX_REQUEST_BYTES)))]
    return found


def read_answer(data: bytes, request_id: RequestId) -> list[Wire]:
    """Returns the messages in the response to a POST of a request, in its body or in an event; the reply is last."""
    if not data.strip():
        return [error_reply(request_id, "the server's response is empty")]
    try:
        messages = read_messages(data, request_id)
    except ValueError as exc:
        return [error_reply(request_id, f"the server's response is not an MCP message ({exc}): {_excerpt(data)}")]
    others = [message for message in messages if "method" in message]
    replies = [message for message in messages if "method" not in message]
    own = next((reply for reply in replies if str(reply["id"]) == str(request_id)), replies[0] if replies else None)
    return others if own is None else [*others, {**own, "id": request_id}]


def error_reply(request_id: RequestId, text: str, code: int = PARSE_ERROR) -> Wire:
    """Returns a reply that is an error."""
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}


def encode(message: Wire) -> bytes:
    """Returns a message as JSON."""
    return to_json(message, inf_nan_mode="constants")


def _salvaged(data: bytes, exc: Exception) -> Wire:
    """Returns the reply in data that is not JSON, or an error for its request.

    Raises:
        ValueError: If they are not a reply, or its id can't be read.
    """
    start = max(data.find(b"{"), 0)
    if start:  # a server may have printed something without a line end before its reply
        with suppress(ValueError, RecursionError):
            reply = _repaired(_parsed(data[start:]), None)
            if reply is not None and "method" not in reply:
                return reply
    request_id = _request_id(data[start:])
    if request_id is None:
        raise ValueError(f"not JSON: {exc}") from None
    return error_reply(request_id, f"the server's response is not valid JSON ({exc}): {_excerpt(data)}")


def _parsed(data: bytes) -> Any:
    """Returns the value of JSON; unless it is long, repairs invalid UTF-8, lone surrogates and control characters."""
    if len(data) > MAX_REPAIRED:
        return from_json(data)
    text = data.decode(errors="replace")
    try:
        return from_json(text)
    except ValueError:
        lenient = json.dumps(json.loads(text, strict=False), ensure_ascii=False)
        # Parsed again for the limits of the faster parser, which the SDK also uses.
        return from_json(lenient.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))


def _parsed_at_once(data: bytes) -> Any:
    """Returns the value of JSON without garbage collection, which would look at a million values again and again."""
    with gc_paused(own=True):
        return _parsed(data)


def _repaired(value: Any, default_id: RequestId | None) -> Wire | None:
    """Returns a message that follows JSON-RPC, or None if the value is not a message."""
    if not isinstance(value, dict):
        return None
    message = cast(Wire, value)
    is_reply = "result" in message or "error" in message
    if isinstance(message.get("method"), str) and not is_reply:
        return {**message, "jsonrpc": "2.0"}
    request_id = message.get("id")
    if isinstance(request_id, float) and request_id.is_integer():
        request_id = int(request_id)
    if not isinstance(request_id, int | str) or isinstance(request_id, bool):
        request_id = default_id
    if request_id is None or not (is_reply or "jsonrpc" in message):
        return None
    error, result = message.get("error"), message.get("result")
    if error is not None:
        return {"jsonrpc": "2.0", "id": request_id, "error": _error(error)}
    if isinstance(result, dict):
        return {"jsonrpc": "2.0", "id": request_id, "result": result}
    return error_reply(
        request_id, f"the server's response contains no result: {_excerpt(encode(message))}", INTERNAL_ERROR
    )


def _needed(message: Wire, is_large: bool) -> Wire | None:
    """Returns the parts of a message that ipybox needs; None if it needs none."""
    method, request_id = message.get("method"), message.get("id")
    if method is not None and request_id is None:
        return {"jsonrpc": "2.0", "method": method} if method == TOOLS_CHANGED else None
    if method is None or not is_large:
        return message
    is_long = isinstance(request_id, str) and len(request_id) > _MAX_ID
    return None if is_long else {"jsonrpc": "2.0", "id": request_id, "method": method}


def _error(error: Any) -> Wire:
    """Returns an error object with a number as its code and a text as its message."""
    if not isinstance(error, dict):
        return {"code": INTERNAL_ERROR, "message": error if isinstance(error, str) else _excerpt(to_json(error))}
    fields = cast(Wire, error)
    code, message = fields.get("code"), fields.get("message")
    if not isinstance(message, str):
        message = _excerpt(to_json(fields))
    elif isinstance(code, str):
        message = f"{code}: {message}"
    if not isinstance(code, int) or isinstance(code, bool):
        code = INTERNAL_ERROR
    return {"code": code, "message": message, **({"data": fields["data"]} if "data" in fields else {})}


def _request_id(data: bytes) -> RequestId | None:
    """Returns the id of a reply that can't be parsed."""
    found = _FIRST_ID.match(data) or _LAST_ID.search(data, max(len(data) - _TAIL, 0))
    return found and from_json(found["id"])


def _excerpt(data: bytes) -> str:
    text = data[: 4 * EXCERPT].decode(errors="replace")
    return text if len(text) <= EXCERPT and len(data) <= 4 * EXCERPT else f"{text[:EXCERPT]}…"
