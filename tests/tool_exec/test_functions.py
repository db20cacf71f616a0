"""Functions of an application as tools: what they accept, what code gets, and errors for the developer."""

import asyncio
import functools
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from ipybox.errors import ToolRunnerError
from ipybox.tool_exec import function_tools
from ipybox.tool_exec.function_tools import FunctionTool, FunctionTools
from tests.servers import WAIT

if TYPE_CHECKING:
    from nowhere import Unknown  # pyright: ignore[reportMissingImports, reportUnknownVariableType]


NOT_JSON = object()


class Item(BaseModel):
    name: str
    parts: list["Item"] = []


@dataclass
class Period:
    start: date
    days: int = 1


class Options(TypedDict, total=False):
    limit: int


class Plain:
    """A class that says nothing about its values."""


def tool(function: Callable[..., Any]) -> FunctionTool:
    return FunctionTools([function]).tools[0]


async def call(function: Callable[..., Any], **arguments: object) -> Any:
    """Returns the structured content or the text of a call."""
    async with asyncio.timeout(WAIT):
        reply = await FunctionTools([function]).call(function.__name__, arguments)
    assert "error" not in reply
    if structured := reply.get("structured"):
        assert reply.get("content") == []
        return structured
    return [block["text"] for block in reply.get("content", [])]


def test_a_definition_comes_from_signature_and_docstring():
    def search(
        words: Annotated[str, Field(description="What to look for.")],
        period: Period,
        *,
        limit: int = 3,
        depth: float = Field(1, ge=0),
        marker: Any = NOT_JSON,
    ) -> Item:
        """Searches.

        Everywhere.
        """
        raise NotImplementedError

    found = tool(search)

    assert (found.name, found.description) == ("search", "Searches.\n\nEverywhere.")
    assert found.input_schema["required"] == ["words", "period"]
    assert found.input_schema["additionalProperties"] is False
    properties = found.input_schema["properties"]
    assert properties["words"]["description"] == "What to look for."
    assert properties["limit"]["default"] == 3
    assert properties["depth"]["minimum"] == 0
    assert "default" not in properties["marker"]  # it is not JSON
    assert found.input_schema["$defs"]["Period"]["properties"]["start"]["format"] == "date"
    assert found.output_schema is not None
    assert found.output_schema["$defs"]["Item"]["type"] == "object"


async def test_arguments_have_their_types_and_defaults():
    def show(period: Period, items: list[Item], options: Options, schema: str = "s", _n: int = 2) -> str:
        assert isinstance(items[0], Item)
        return f"{period.start.year} {period.days} {items[0].parts[0].name} {options} {schema} {_n}"

    items = [{"name": "a", "parts": [{"name": "b"}]}]

    assert await call(show, period={"start": "2026-01-02"}, items=items, options={"limit": 1}, schema="t") == [
        "2026 1 b {'limit': 1} t 2"
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"amount": "1"}, "amount: Input should be a valid integer"),
        ({"amount": True}, "amount: Input should be a valid integer"),
        ({"amount": None}, "amount: Input should be a valid integer"),
        ({}, "amount: Missing required argument"),
        ({"amount": 1, "to": "me"}, "to: Unexpected keyword argument"),
        ({"amount": -1}, "amount: Input should be greater than or equal to 0"),
        ({"amount": 1, "tags": ["a", 2]}, "tags.1: Input should be a valid string"),
        ({"amount": 1, "tags": ["\ud800"]}, "Invalid JSON: unexpected end of hex escape"),
        ({"amount": 1, "tags": [1] * 12}, "; 12 problems in all"),
        ({"__args__": [1]}, "__args__: Unexpected keyword argument"),
        ({"amount": 1, "self": 1}, "self: Unexpected keyword argument"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_before_the_call(arguments: dict[str, Any], problem: str):
    called: list[int] = []

    async def pay(amount: Annotated[int, Field(ge=0)], tags: list[str] = []) -> None:  # noqa: B006 - pydantic copies it
        called.append(amount)

    with pytest.raises(ToolRunnerError, match=f"^{re.escape('invalid arguments for pay(): ')}") as error:
        await FunctionTools([pay]).call("pay", arguments)

    assert problem in str(error.value)
    assert called == []


async def test_only_functions_of_the_list_can_be_called():
    def listed() -> str:
        return "listed"

    functions = FunctionTools([listed])

    for name in ("open", "__init__", "call", "listed.__globals__", "Listed", ""):
        with pytest.raises(ToolRunnerError, match=re.escape(f"no function {name!r}; available: listed")):
            await functions.call(name, {})


def number() -> int:
    return 1


def nothing() -> None:
    pass


def text() -> str:
    return "ä"


def perhaps() -> str | None:
    return None


def names() -> list[str]:
    return ["a"]


def table() -> dict[str, float]:
    return {"x": 0.5}


def by_number() -> dict[int, str]:
    return {1: "a"}


def whatever() -> Any:
    return {"when": date(2026, 1, 2), "tuple": (1, 2)}


def period() -> Period:
    return Period(date(2026, 1, 2))


def options() -> Options:
    return {"limit": 1}


def item() -> Item:
    class Special(Item):
        secret: str = "not part of the declared type"

    return Special(name="a", parts=[Item(name="b")])


#: Functions, and what code gets.
RESULTS: list[tuple[Callable[[], Any], object]] = [
    (nothing, []),
    (text, ["ä"]),
    (number, {"result": 1}),
    (perhaps, {"result": None}),
    (names, {"result": ["a"]}),
    (table, {"x": 0.5}),
    (by_number, {"1": "a"}),
    (whatever, {"result": {"when": "2026-01-02", "tuple": [1, 2]}}),
    (period, {"start": "2026-01-02", "days": 1}),
    (options, {"limit": 1}),
    (item, {"name": "a", "parts": [{"name": "b", "parts": []}]}),
]


@pytest.mark.parametrize(("function", "result"), RESULTS)
async def test_objects_are_structured_content_other_values_are_wrapped_and_text_is_text(
    function: Callable[[], Any], result: object
):
    assert await call(function) == result
    assert (tool(function).output_schema is None) is isinstance(result, list)


def circle() -> Any:
    values: list[Any] = []
    values.append(values)
    return values


def an_object() -> dict[str, Any]:
    return {"x": object()}


def not_a_number() -> float:
    return float("nan")


def no_unicode() -> str:
    return "\ud800"


def wrong_type() -> int:
    return "one"  # pyright: ignore[reportReturnType] - this is tested


def wrongly_changed() -> Item:
    changed = Item(name="a")
    changed.name = 5  # pyright: ignore[reportAttributeAccessIssue] - this is tested
    return changed


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (circle, "is not JSON: Circular reference"),
        (an_object, "is not JSON: Unable to serialize unknown type: <class 'object'>"),
        (not_a_number, "is not JSON: Out of range float values"),
        (no_unicode, "is not JSON: 'utf-8' codec can't encode"),
        (wrong_type, "does not match its return type: result: Input should be a valid integer"),
        (wrongly_changed, "is not JSON: "),
    ],
)
async def test_a_result_that_is_not_json_of_its_type_is_an_error(function: Callable[[], Any], problem: str):
    with pytest.raises(ToolRunnerError, match=f"^{re.escape(f'the result of {function.__name__}() {problem}')}"):
        await call(function)


def fails() -> str:
    raise LookupError("no such account")


async def fails_later() -> str:
    raise LookupError("no such account")


def fails_without_text() -> str:
    raise LookupError


def reads() -> str:
    return Path("/srv/private/accounts.db").read_text()


def exits() -> str:
    raise SystemExit("enough")


async def exits_later() -> str:
    raise SystemExit("enough")


def is_interrupted() -> str:
    raise KeyboardInterrupt


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise LookupError


def raises_the_unreadable() -> str:
    raise UnreadableError


def stops() -> str:
    return next(iter([]))


def is_cancelled() -> str:
    raise asyncio.CancelledError


async def awaits_what_was_cancelled() -> str:
    other = asyncio.create_task(asyncio.sleep(WAIT))
    other.cancel()
    await other
    return "never"


def recurses() -> str:
    return recurses()


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (fails, "LookupError: no such account"),
        (fails_later, "LookupError: no such account"),
        (fails_without_text, "LookupError"),
        (reads, "FileNotFoundError: No such file or directory"),
        (exits, "SystemExit: enough"),
        (exits_later, "SystemExit: enough"),
        (stops, "RuntimeError: the function raised StopIteration"),
        (is_cancelled, "CancelledError"),
        (is_interrupted, "KeyboardInterrupt"),
        (raises_the_unreadable, "UnreadableError"),
        (awaits_what_was_cancelled, "CancelledError"),
        (recurses, "RecursionError: maximum recursion depth exceeded"),
    ],
)
async def test_an_exception_is_an_error_with_its_type_and_text(function: Callable[[], Any], error: str):
    with pytest.raises(ToolRunnerError) as raised:
        await call(function)

    assert str(raised.value) == error


async def test_a_sync_function_does_not_block_the_event_loop():
    loop, turned = asyncio.get_running_loop(), threading.Event()

    def wait() -> bool:
        loop.call_soon_threadsafe(turned.set)
        return turned.wait(WAIT)

    assert await call(wait) == {"result": True}


async def test_an_async_function_runs_in_the_loop_and_is_cancelled_with_its_caller():
    loop, begun, outcomes = asyncio.get_running_loop(), asyncio.Event(), list[str]()

    async def wait() -> None:
        assert asyncio.get_running_loop() is loop
        begun.set()
        try:
            await asyncio.sleep(WAIT)
        except asyncio.CancelledError:
            outcomes.append("cancelled")
            raise

    calling = asyncio.create_task(call(wait))
    async with asyncio.timeout(WAIT):
        await begun.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert outcomes == ["cancelled"]


async def test_threads_of_calls_that_were_cancelled_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(function_tools, "MAX_THREADS", 1)
    begun, released, ended = threading.Event(), threading.Event(), threading.Event()

    def block() -> bool:
        begun.set()
        ended.set() if released.wait(WAIT) else None
        return True

    functions = FunctionTools([block])
    calling = asyncio.create_task(functions.call("block", {}))
    assert await asyncio.to_thread(begun.wait, WAIT)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    with pytest.raises(ToolRunnerError, match=r"^block\(\) was not called: too many calls are running"):
        await functions.call("block", {})

    released.set()
    assert await asyncio.to_thread(ended.wait, WAIT)
    for thread in threading.enumerate():
        if thread.name == "ipybox-block":
            thread.join(WAIT)
    assert (await functions.call("block", {})).get("structured") == {"result": True}


class Account:
    def balance(self, currency: str) -> str:
        """Returns the balance."""
        return f"1 {currency}"


async def test_a_bound_method_and_a_decorated_function_are_tools():
    def traced(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return call

    assert await call(Account().balance, currency="EUR") == ["1 EUR"]
    assert await call(traced(number)) == {"result": 1}
    assert tool(Account().balance).description == "Returns the balance."


def untyped(x) -> None: ...  # pyright: ignore
def without_result(x: int): ...
def unknown(x: "Unknown") -> None: ...  # pyright: ignore[reportUnknownParameterType]
def unknown_result() -> "list[Unknown]": ...  # pyright: ignore
def no_expression(x: "int +") -> None: ...  # pyright: ignore  # noqa: F722
def no_schema(x: Plain) -> None: ...
def result_without_schema() -> Plain: ...  # pyright: ignore[reportReturnType]
def many(*words: str) -> None: ...
def keywords(**words: str) -> None: ...
def by_position(word: str, /) -> None: ...
def generator() -> Iterator[int]:
    yield 1


#: What can't be a tool, and what the developer reads.
REJECTED: list[tuple[Callable[..., Any], str]] = [
    (untyped, "parameter 'x' of untyped() has no type: annotate it"),
    (without_result, "the result of without_result() has no type: annotate it"),
    (unknown, "the type 'Unknown' of parameter 'x' of unknown() can't be resolved: name 'Unknown' is not defined"),
    (
        unknown_result,
        "the type 'list[Unknown]' of the result of unknown_result() can't be resolved: name 'Unknown'",
    ),
    (no_expression, "the type 'int +' of parameter 'x' of no_expression() can't be resolved"),
    (no_schema, "the type <class 'tests.tool_exec.test_functions.Plain'> of parameter 'x' of no_schema() has no"),
    (result_without_schema, "of the result of result_without_schema() has no JSON Schema"),
    (many, "parameter '*words: str' of many() accepts any number of arguments: use a list"),
    (keywords, "parameter '**words: str' of keywords() accepts any number of arguments: use a dict"),
    (by_position, "parameter 'word: str' of by_position() is positional-only: tools are called with keyword"),
    (generator, "generator() is a generator: return a list"),
    (lambda: 1, "<lambda> has no usable name: define a function with `def`"),
    (Account.balance, "parameter 'self' of balance() has no type: annotate it"),
    (functools.partial(number), "is not a function or method: define a function with `def`"),
    (Account, "is not a function or method: define a function with `def`"),
    (len, "<built-in function len> is not a function or method"),
]


@pytest.mark.parametrize(("function", "error"), REJECTED)
def test_a_function_that_can_not_be_a_tool_is_an_error_at_construction(function: Callable[..., Any], error: str):
    with pytest.raises(ValueError, match=re.escape(error)) as raised:
        FunctionTools([function])
    assert str(raised.value).startswith("tools: ")


def test_names_must_differ():
    with pytest.raises(ValueError, match=re.escape("more than one function is called balance(): give each its own")):
        FunctionTools([Account().balance, number, Account().balance])
