"""Generated packages that are really written, imported and called, with a tool runner that only notes the calls."""

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ipybox.guest.tools.client import ToolRunner as _ToolRunner
from ipybox.guest.tools.protocol import RunReply
from ipybox.mcp_apigen.package.files import ToolSpec, render_package
from ipybox.mcp_apigen.render.naming import module_names
from ipybox.tool_exec import client

Call = tuple[str, str, dict[str, Any]]
Loader = Callable[[list[ToolSpec]], list[ModuleType]]


@dataclass
class FakeRunner:
    """Stands for `ToolRunner`: notes the method, tool and arguments of each call.

    It replies with the text `text`, and with `result` where a tool has one.
    """

    server_name: str
    server_params: dict[str, Any]
    seal: str
    calls: list[Call] = field(default_factory=list[Call])
    result: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def from_env(cls, server_name: str, server_params: dict[str, Any], seal: str) -> "FakeRunner":
        return cls(server_name, server_params, seal)

    tool = _ToolRunner.tool

    def reply_sync(self, tool_name: str, tool_args: dict[str, Any]) -> RunReply:
        self.calls.append(("reply_sync", tool_name, tool_args))
        return {"content": [{"type": "text", "text": "text"}], "structured": self.result}

    async def reply(self, tool_name: str, tool_args: dict[str, Any]) -> RunReply:
        self.calls.append(("reply", tool_name, tool_args))
        return {"content": [{"type": "text", "text": "text"}], "structured": self.result}


_numbers = count()


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loader]:
    """Imports the modules of a package that is generated for the tools, in their order."""
    monkeypatch.setattr(client, "ToolRunner", FakeRunner)
    monkeypatch.syspath_prepend(str(tmp_path))  # pyright: ignore[reportUnknownMemberType]
    packages: list[str] = []

    def load(tools: list[ToolSpec]) -> list[ModuleType]:
        package = f"generated_{next(_numbers)}"
        packages.append(package)
        (tmp_path / package).mkdir()
        for name, text in render_package(package, {"command": "x"}, tools, "seal").items():
            (tmp_path / package / name).write_text(text, encoding="utf-8")
        importlib.invalidate_caches()
        return [
            importlib.import_module(f"{package}.{name}") for name in module_names([tool.name for tool in tools], {})
        ]

    yield load
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]


@pytest.fixture
def load_one(load: Loader) -> Callable[..., ModuleType]:
    """Imports the module of a single tool."""

    def load_one(input_schema: Any, output_schema: Any = None, name: str = "tool") -> ModuleType:
        return load([ToolSpec(name, "Does it.", input_schema, output_schema)])[0]

    return load_one
