"""Arguments that are no JSON: what becomes JSON, and what is refused with its place."""

import asyncio
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import subprocess
import sys
import types
import uuid
from typing import Annotated, Any

import numpy as np
import pandas as pd  # pyright: ignore[reportMissingTypeStubs] - it has neither stubs nor a marker
import pytest
from pydantic import BaseModel, Field, ValidationError, field_serializer

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutor
from ipybox.errors import ToolRunnerError
from ipybox.guest.tools.arguments import ArgumentError, as_json
from ipybox.guest.tools.client import ToolRunner
from ipybox.guest.tools.models import UNSET, Choice, Input, Output, wire
from tests import servers
from tests.conftest import Mode

WHEN = datetime.datetime(2026, 11, 1, 9, 30, tzinfo=datetime.UTC)
ID = uuid.UUID("0d3ee9a4-e4f3-4c2c-9b4b-5a0b9e3c1c11")


class Level(enum.Enum):
    HIGH = "high"
    SINCE = WHEN


class Number(enum.IntEnum):
    ONE = 1


class Sub(str):
    def __str__(self) -> str:
        return "other"


@dataclasses.dataclass
class Point:
    x: Any
    y: int = 2


class Filter(BaseModel):
    since: datetime.date
    op: str = Field(default="eq", alias="op-name")


class Stamped(BaseModel):
    day: datetime.date

    @field_serializer("day")
    def _day(self, day: datetime.date) -> str:
        return f"{day:%d.%m.%Y}"


Sort = Choice("Sort", "stars forks")


class Item(Input):
    a_b: Annotated[str, Field(alias="a-b")] = UNSET
    sort: Sort = UNSET
    when: Any = UNSET


class Row(Output):
    name: str
    size: int | None = None


CONVERTED: dict[str, tuple[Any, Any]] = {
    "datetime": (WHEN, "2026-11-01T09:30:00Z"),
    "naive datetime": (WHEN.replace(tzinfo=None), "2026-11-01T09:30:00"),
    "date": (WHEN.date(), "2026-11-01"),
    "time": (WHEN.time(), "09:30:00"),
    "duration": (datetime.timedelta(minutes=90), "PT1H30M"),
    "uuid": (ID, str(ID)),
    "path": (pathlib.Path("a/b"), "a/b"),
    "pure path": (pathlib.PurePosixPath("/a"), "/a"),
    "enum": (Level.HIGH, "high"),
    "enum of dates": (Level.SINCE, "2026-11-01T09:30:00Z"),
    "enum of integers": (Number.ONE, 1),
    "choice": (Sort.stars, "stars"),
    "decimal": (decimal.Decimal("1.50"), "1.50"),
    "set": ({1}, [1]),
    "frozen set": (frozenset({"a"}), ["a"]),
    "tuple": ((1, (2,)), [1, [2]]),
    "generator": ((each for each in [ID]), [str(ID)]),
    "mapping": (types.MappingProxyType({"a": ID}), {"a": str(ID)}),
    "dataclass": (Point(x=[WHEN.date()]), {"x": ["2026-11-01"], "y": 2}),
    "model": (Filter.model_validate({"since": WHEN.date()}), {"since": "2026-11-01", "op-name": "eq"}),
    "model with a serializer": (Stamped(day=WHEN.date()), {"day": "01.11.2026"}),
    "generated model": (Item(a_b="x", when=WHEN), {"a-b": "x", "when": "2026-11-01T09:30:00Z"}),
    "result of a tool": (Row(name="x"), {"name": "x"}),
    "text with another form": (Sub("x"), "x"),
    "keys": ({ID: 1, Level.HIGH: 2, 3: 4, None: 5, True: 6}, {str(ID): 1, "high": 2, "3": 4, "null": 5, "true": 6}),
    "numpy integer": (np.int64(2**60), 2**60),
    "numpy unsigned": (np.uint8(7), 7),
    "numpy float": (np.float32(1.5), 1.5),
    "numpy double": (np.float64(1.5), 1.5),
    "numpy long double": (np.longdouble(1.5), 1.5),
    "numpy flag": (np.bool_(True), True),
    "numpy text": (np.str_("x"), "x"),
    "numpy date": (np.datetime64("2026-11-01"), "2026-11-01"),
    "numpy nanoseconds": (np.datetime64("2026-11-01T00:00:00", "ns"), "2026-11-01T00:00:00.000000000"),
    "pandas time": (pd.Timestamp("2026-11-01T09:30Z"), "2026-11-01T09:30:00Z"),
}

BYTES = "can't represent: send text, such as value.decode() or base64.b64encode(value).decode()"


class Opaque:
    pass


class Failing(BaseModel):
    value: Any


REFUSED: dict[str, tuple[Any, str]] = {
    "bytes": (b"x", f"when is of type bytes, which JSON {BYTES}"),
    "bytearray": ([bytearray()], f"when[0] is of type bytearray, which JSON {BYTES}"),
    "view": ({"x": memoryview(b"")}, f"when.x is of type memoryview, which JSON {BYTES}"),
    "object": ([{"x": Opaque()}], f"when[0].x is of type {__name__}.Opaque, which JSON can't represent"),
    "class": (Point, "when is of type type, which JSON can't represent"),
    "model's class": (Filter, f"when is of type {type(Filter).__module__}.ModelMetaclass, which JSON"),
    "function": (as_json, "when is of type function, which JSON can't represent"),
    "in a dataclass": (Point(x={"a b": Opaque()}), "when.x['a b'] is of type"),
    "in a model": (
        [Failing(value=Opaque())],
        f"when[0] is of type {__name__}.Failing, which JSON can't represent: Unable",
    ),
    "in a generated model": (Item(when=[b""]), "when.when[0] is of type bytes"),
    "nan": ([math.nan], "when[0] is nan, which JSON can't represent"),
    "infinity": ({"x": -math.inf}, "when.x is -inf, which JSON can't represent"),
    "numpy nan": (np.float32("nan"), "when is nan, which JSON can't represent"),
    "surrogate": (["a\ud800"], "when[0] is not valid Unicode: 'utf-8' codec can't encode"),
    "surrogate in a key": ({"\ud800": Opaque()}, "when is not valid Unicode"),
    "key": ({(1, 2): 3}, "when has a key of type tuple: JSON keys must be strings"),
    "key of bytes": ({b"": 3}, "when is of type bytes"),
    "numpy array": (np.arange(3), "when is of type numpy.ndarray, which JSON can't represent: send value.tolist()"),
    "numpy duration": (np.timedelta64(1, "s"), "when is of type numpy.timedelta64, which JSON can't represent"),
    "numpy no time": (np.datetime64("NaT"), "when is of type numpy.datetime64, which JSON can't represent"),
    "pandas no time": (pd.NaT, f"when is of type {type(pd.NaT).__module__}.NaTType, which JSON can't represent"),
    "pandas column": (
        pd.Series([1]),
        f"when is of type {pd.Series.__module__}.Series, which JSON can't represent: send value.tolist()",
    ),
}


@pytest.mark.parametrize(("value", "expected"), CONVERTED.values(), ids=CONVERTED.keys())
def test_values_become_json(value: Any, expected: Any) -> None:
    converted = as_json({"when": value, "deep": [{"x": 1}]})
    assert json.dumps(converted) == json.dumps({"when": expected, "deep": [{"x": 1}]})


@pytest.mark.parametrize(("value", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_values_without_a_form_are_an_error_with_their_place(value: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as error:
        as_json({"fine": WHEN, "when": value})
    assert str(error.value).startswith(message)


def test_arguments_that_contain_themselves_are_an_error() -> None:
    arguments: dict[str, Any] = {}
    arguments["x"] = [arguments]
    with pytest.raises(ArgumentError, match=r"^the arguments are nested too deeply, or contain themselves$"):
        as_json(arguments)


def test_numpy_and_pydantic_are_not_imported_for_json_and_plain_types() -> None:
    code = """
import sys
from datetime import date
from ipybox.guest.tools.arguments import as_json
from ipybox.guest.tools.client import ToolRunner
assert as_json({"a": {1}, "b": (None, 1.5)}) == {"a": [1], "b": [None, 1.5]}
assert not {"numpy", "pydantic", "pydantic_core"} & sys.modules.keys()
assert as_json({"a": date(2026, 11, 1)}) == {"a": "2026-11-01"}
assert "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


class Params(Input, extra="forbid"):
    since: str
    limit: Annotated[int, Field(ge=1)] = UNSET
    ratio: float = UNSET
    labels: list[str] = UNSET
    item: Item = UNSET
    any: Any = UNSET


def test_params_take_what_becomes_the_json_that_the_schema_allows() -> None:
    params = Params(
        since=WHEN,  # pyright: ignore[reportArgumentType] - as agents do
        limit=np.int64(5),  # pyright: ignore[reportArgumentType]
        ratio=np.float32(0.5),  # pyright: ignore[reportArgumentType]
        labels={pathlib.Path("a")},  # pyright: ignore[reportArgumentType]
        item=Item(a_b="x"),
    )
    assert wire(params) == {
        "since": "2026-11-01T09:30:00Z",
        "limit": 5,
        "ratio": 0.5,
        "labels": ["a"],
        "item": {"a-b": "x"},
    }


@pytest.mark.parametrize(
    ("values", "place", "message"),
    [
        ({"since": b"x"}, ("since",), BYTES),
        ({"since": 1, "item": {"when": WHEN}}, ("since",), "Input should be a valid string"),
        (
            {"since": "x", "labels": [WHEN, Opaque()]},
            ("labels", 1),
            "test_arguments.Opaque, which JSON can't represent",
        ),
        ({"since": "x", "limit": np.int64(0)}, ("limit",), "greater than or equal to 1"),
        ({"since": "x", "limit": np.float64(1.5)}, ("limit",), "valid integer"),
        ({"since": "x", "ratio": math.nan}, ("ratio",), "nan, which JSON can't represent"),
        ({"limit": 1}, ("since",), "Field required"),
    ],
)
def test_params_refuse_all_else_and_name_the_field(
    values: dict[str, Any], place: tuple[str, int], message: str
) -> None:
    with pytest.raises(ValidationError) as error:
        Params(**values)
    (found,) = error.value.errors()
    assert found["loc"] == place
    assert message in found["msg"]


def test_nested_params_with_a_mistake_at_the_bottom_are_refused_in_time() -> None:
    class Node(Input):
        next: "Node" = UNSET
        value: int = UNSET

    values: dict[str, Any] = {"value": "no number"}
    for _ in range(60):
        values = {"next": values}
    with pytest.raises(ValidationError, match="valid integer"):
        Node(**values)


# In a kernel


async def sent(sandbox: bool, directory: pathlib.Path, code: str) -> list[dict[str, Any]]:
    """Returns the arguments of the calls of some code, as the application gets them."""
    servers.register(directory, scripted=servers.scripted())
    calls: list[dict[str, Any]] = []
    async with CodeExecutor(working_dir=directory, sandbox=sandbox) as executor:
        await executor.execute("from registered import scripted")
        async for item in executor.stream(code, timeout=servers.WAIT):
            if isinstance(item, ApprovalRequest):
                calls.append(item.tool_args)
                await item.accept()
    return calls


async def test_calls_from_a_kernel_send_dates_paths_and_models(mode: Mode, tmp_path: pathlib.Path) -> None:
    code = """
from datetime import date, datetime
from pathlib import Path
from pydantic import BaseModel
import numpy
class Filter(BaseModel):
    since: date
arguments = {"text": Path("x"), "when": datetime(2026, 11, 1), "n": numpy.int64(1)}
arguments["f"] = [Filter(since=date(2026, 1, 2))]
scripted.run_sync("echo", arguments)
await scripted.run("echo", arguments)
scripted.run_sync("echo", {"text": "plain"})
"""
    converted = {"text": "x", "when": "2026-11-01T00:00:00", "n": 1, "f": [{"since": "2026-01-02"}]}
    assert await sent(mode.sandbox, tmp_path, code) == [converted, converted, {"text": "plain"}]


async def test_calls_from_a_kernel_with_anything_else_name_its_place(mode: Mode, tmp_path: pathlib.Path) -> None:
    message = r"ToolRunnerError: can't send the arguments of echo: when\[0\].x is of type bytes, which JSON"
    with pytest.raises(CodeExecutionError, match=message):
        await sent(mode.sandbox, tmp_path, "scripted.run_sync('echo', {'when': [{'x': b''}]})")


async def test_parameters_of_a_server_that_are_no_json_are_an_error_of_python() -> None:
    runner = ToolRunner("server", {"command": Opaque()}, port=1)
    with pytest.raises(TypeError, match="Opaque is not JSON serializable"):
        await runner.run("tool", {"when": WHEN})
    with pytest.raises(ToolRunnerError, match=r"^no response from the tool server"):
        await asyncio.to_thread(ToolRunner("server", {}, port=1).run_sync, "tool", {"when": WHEN})
