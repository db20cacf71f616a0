"""Corpora of tools: dumps of what servers answer to `tools/list`, in any of the usual shapes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.codegen import suite
from benchmarks.codegen.suite import Case
from ipybox.mcp_apigen.package.files import ToolSpec
from ipybox.mcp_apigen.schema.values import elements, is_object

_ENDINGS = (".json", ".jsonl", ".ndjson")


class CorpusError(Exception):
    """What was given is no corpus; the message is one line."""


@dataclass(frozen=True)
class Corpus:
    """Tools that are generated as one package.

    Attributes:
        name: What the report calls it.
        tools: The tools, in the order of the file.
        cases: What a test suite says about arguments of the tools.
        remote: How many schemas are omitted because they refer to others.
    """

    name: str
    tools: list[ToolSpec]
    cases: tuple[Case, ...] = ()
    remote: int = 0


def read(path: Path) -> list[Corpus]:
    """Reads a dump, a directory of dumps, or the folder of the JSON-Schema-Test-Suite.

    Raises:
        CorpusError: There is no such file, it is no JSON, or has no tools.
    """
    if path.is_dir():
        drafts = [draft for name in suite.DRAFTS if (draft := path / "tests" / name).is_dir()]
        return [_read_draft(draft) for draft in drafts] if drafts else _read_directory(path)
    return [_read_dump(path, path.stem)]


def _read_draft(folder: Path) -> Corpus:
    tools, cases, remote = suite.read(folder)
    if not tools:
        raise CorpusError(f"{folder}: no tests in it")
    return Corpus(folder.name, tools, tuple(cases), remote)


def _read_directory(folder: Path) -> list[Corpus]:
    paths = sorted(path for path in folder.rglob("*") if path.suffix in _ENDINGS and path.is_file())
    if not paths:
        raise CorpusError(f"{folder}: no files that end with {', '.join(_ENDINGS)}")
    return [_read_dump(path, str(path.relative_to(folder).with_suffix(""))) for path in paths]


def _read_dump(path: Path, name: str) -> Corpus:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise CorpusError(f"{path}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise CorpusError(f"{path}: not UTF-8, at byte {exc.start}") from exc
    try:
        tools = [_tool(tool) for tool in _tools(_parse(text))]
    except CorpusError as exc:
        raise CorpusError(f"{path}: {exc}") from exc
    if not tools:
        raise CorpusError(f"{path}: no tools in it")
    return Corpus(name, tools)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise CorpusError("nested too deeply") from None
    except json.JSONDecodeError as exc:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if exc.msg != "Extra data" or len(lines) < 2:
            raise CorpusError(f"no JSON: {exc}") from exc
    return [_parse_line(number, line) for number, line in lines]


def _parse_line(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as exc:
        raise CorpusError(f"no JSON in line {number}: {exc.msg} at column {exc.colno}") from exc


def _tools(value: Any) -> list[dict[str, Any]]:
    """The tools in one result, in a list of results or tools, or in JSON-RPC responses."""
    if isinstance(value, list):
        return [tool for item in elements(value) for tool in _tools(item)]
    if not is_object(value):
        raise CorpusError(f"neither tools nor a result of tools/list: {json.dumps(value)[:40]}")
    if "inputSchema" in value:
        return [value]
    for key in ("result", "tools"):
        if key in value:
            return _tools(value[key])
    raise CorpusError(f"neither tools nor a result of tools/list: an object with {', '.join(value) or 'nothing'}"[:100])


def _tool(tool: dict[str, Any]) -> ToolSpec:
    name, description = tool.get("name"), tool.get("description")
    if not isinstance(name, str):
        raise CorpusError(f"a tool has no name: {json.dumps(tool)[:40]}")
    text = description if isinstance(description, str) else None
    return ToolSpec(name, text, tool["inputSchema"], tool.get("outputSchema"))
