"""The multi-turn tasks of the Berkeley Function Calling Leaderboard: their tools, states, ground truths and outcomes.

The package `bfcl-eval` has four suites of 200 tasks. Each task loads up to four classes with a
state of its own; its ground truth is a list of calls of their methods. The tests and the MCP server both use this
module, so that results differ only if ipybox changed something on the way.
"""

import ast
import copy
import importlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

#: Where `make bfcl` installs the package.
INSTALLED = Path(__file__).parents[2] / ".bfcl"

SUITES = ("base", "long_context", "miss_func", "miss_param")

#: The classes with executable methods, and the module of each, which is also the name of its documentation.
CLASSES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}

#: What the documentation calls types that JSON Schema has other names for.
_TYPES = {"dict": "object", "float": "number", "tuple": "array"}


@dataclass(frozen=True)
class Call:
    """A call of a ground truth, with arguments by name."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A task of a suite."""

    id: str
    classes: tuple[str, ...]
    state: dict[str, Any]
    calls: tuple[Call, ...]

    @property
    def long_context(self) -> bool:
        """Whether its classes are filled with much more data than the task needs."""
        return "long_context" in self.id


class Instances:
    """The objects that a task's calls change."""

    def __init__(self, task: Task):
        self._objects = {name: _load(name, task) for name in task.classes}

    def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Return a call's result as text.

        Raises:
            Exception: What the method raises.
        """
        method = next(getattr(each, tool) for each in self._objects.values() if hasattr(each, tool))
        result = method(**copy.deepcopy(arguments))  # one of the classes keeps what it is passed
        return result if isinstance(result, str) else json.dumps(result, default=str)

    def state(self) -> dict[str, Any]:
        """Return the public attributes of all objects, as JSON."""
        return json.loads(json.dumps({name: _public(each) for name, each in self._objects.items()}, default=_state))


@cache
def tools() -> list[dict[str, Any]]:
    """Return all methods as MCP tools, with their documentation as the schema."""
    return [
        {"name": doc["name"], "description": doc["description"], "inputSchema": _schema(doc["parameters"])}
        for module in CLASSES.values()
        for doc in _lines(f"multi_turn_func_doc/{module}.json")
    ]


@cache
def tasks(suite: str) -> list[Task]:
    """Return the tasks of a suite."""
    truths = {each["id"]: each["ground_truth"] for each in _lines(f"possible_answer/BFCL_v4_multi_turn_{suite}.json")}
    return [
        Task(
            id=each["id"],
            classes=tuple(each["involved_classes"]),
            state=each["initial_config"],
            calls=tuple(_call(text) for turn in truths[each["id"]] for text in turn),
        )
        for each in _lines(f"BFCL_v4_multi_turn_{suite}.json")
    ]


def task(task_id: str) -> Task:
    """Return a task by its id, such as `multi_turn_base_0`."""
    suite = task_id.removeprefix("multi_turn_").rpartition("_")[0]
    return next(each for each in tasks(suite) if each.id == task_id)


def _lines(name: str) -> list[dict[str, Any]]:
    data = INSTALLED / "bfcl_eval" / "data" / name
    return [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]


def _schema(doc: dict[str, Any]) -> dict[str, Any]:
    schema = {**doc, "type": _TYPES.get(doc["type"], doc["type"])}
    if "properties" in doc:
        schema["properties"] = {name: _schema(each) for name, each in doc["properties"].items()}
    if "items" in doc:
        schema["items"] = _schema(doc["items"])
    return schema


def _call(text: str) -> Call:
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    name = node.func.id
    parameters = next(each["inputSchema"]["properties"] for each in tools() if each["name"] == name)
    arguments = dict(zip(parameters, map(ast.literal_eval, node.args), strict=False))
    arguments |= {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    return Call(name, arguments)


def _load(name: str, task: Task) -> Any:
    module = importlib.import_module(f"bfcl_eval.eval_checker.multi_turn_eval.func_source_code.{CLASSES[name]}")
    loaded = getattr(module, name)()
    if name != "MathAPI":  # the one class without a state
        loaded._load_scenario(copy.deepcopy(task.state.get(name, {})), long_context=task.long_context)
    return loaded


def _public(value: object) -> dict[str, Any]:
    return {name: each for name, each in vars(value).items() if not name.startswith("_") and name != "parent"}


def _state(value: object) -> Any:
    return _public(value) if hasattr(value, "__dict__") else str(value)
