"""Turns the cells of a session into a notebook in format 4.5, which is valid whatever JSON the kernel sent.

https://nbformat.readthedocs.io/en/latest/format_description.html
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, cast

import nbformat

from ipybox.audit.notebook.session import ExecutedCell, Note
from ipybox.support.errors import RaisedException
from ipybox.support.outputs import Display, Result, Stream
from ipybox.support.printable import printable

#: Maximum nesting of a JSON value; some notebook readers can't process more.
MAX_DEPTH = 64

#: The nesting down to which objects are nodes, whose keys are also attributes. A node takes 400 bytes: JSON of outputs
#: and arguments, which is below, can contain a million objects.
NODE_DEPTH = 6

#: The key of ipybox's metadata.
NAMESPACE = "ipybox"

# The MIME types for which the format's schema allows JSON values; others require text.
_JSON_TYPE = re.compile(r"^application/(.*\+)?json$")
_SURROGATE = re.compile("[\ud800-\udfff]")


def notebook(
    entries: Sequence[ExecutedCell | Note],
    *,
    title: str | None = None,
    notes: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
) -> nbformat.NotebookNode:
    """Returns an unsigned notebook: JupyterLab does not run HTML and JavaScript in it.

    Its first cell shows the title and the notes, both in Markdown. `metadata` describes the session.
    """
    lines = [*([f"# {title}"] if title else []), *(f"- {note}" for note in notes)]
    shown = [*([Note("\n\n".join(lines[:1]) + "\n" + "\n".join(lines[1:]))] if lines else []), *entries]
    document = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"},
            "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
            NAMESPACE: {"version": version("ipybox"), **_given(metadata or {})},
        },
        "cells": [_cell(number, entry) for number, entry in enumerate(shown, 1)],
    }
    return _json(document)


def code_span(text: str) -> str:
    """Returns Markdown that shows a text literally."""
    return f"`{printable(text).replace('`', chr(39))}`"


def _cell(number: int, entry: ExecutedCell | Note) -> dict[str, Any]:
    cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}}
    if isinstance(entry, Note):
        known, cell = entry.metadata, cell | {"cell_type": "markdown", "source": entry.text}
    else:
        known = _given({**entry.metadata, "tool_calls": entry.tool_calls or None})
        cell |= {
            "cell_type": "code",
            "source": entry.code,
            "execution_count": entry.number,
            "outputs": [*(_output(each, entry.number) for each in entry.outputs), *_error(entry.error)],
        }
    if known:
        cell["metadata"] = {NAMESPACE: known}
    return cell


def _output(output: Stream | Display, number: int) -> dict[str, Any]:
    if isinstance(output, Stream):
        return {"output_type": "stream", "name": output.name, "text": output.text}
    data = {mime: _form(mime, value) for mime, value in output.data.items()}
    display = {"data": data, "metadata": dict(output.metadata)}
    if isinstance(output, Result):
        # The kernel does not count cells: it keeps no history.
        return {"output_type": "execute_result", "execution_count": number, **display}
    return {"output_type": "display_data", **display}


def _error(error: RaisedException | None) -> list[dict[str, Any]]:
    if error is None:
        return []
    lines = error.traceback.split("\n")
    return [{"output_type": "error", "ename": error.name, "evalue": error.value, "traceback": lines}]


def _form(mime: str, value: object) -> object:
    """Returns one form of a display: a JSON value where the format allows one, otherwise text."""
    if isinstance(value, str) or _JSON_TYPE.search(mime):
        return value
    return json.dumps(_json(value), ensure_ascii=False)


def _json(value: object, depth: int = 0) -> Any:
    """Returns a value as valid JSON: without NaN, lone surrogates or excessive nesting."""
    match value:
        case str():
            return value if value.isascii() else _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
        case float() if not math.isfinite(value):
            return None
        case dict() | list() if depth == MAX_DEPTH:
            return f"[... more than {MAX_DEPTH} levels ...]"
        case dict():
            items = cast(dict[str, object], value)
            copied = {_json(name): _json(item, depth + 1) for name, item in items.items()}
            return nbformat.NotebookNode(copied) if depth <= NODE_DEPTH else copied
        case list():
            return [_json(item, depth + 1) for item in cast(list[object], value)]
        case _:
            return value


def _given(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if value is not None}
