"""Asks the user of an MCP client which tools of a server run without asking, when it is registered.

Only policies with hints need the answer, and only a person can give it. An unanswered question agrees to nothing and is
asked again at the next registration.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from itertools import accumulate
from typing import Any

from mcp_types import ElicitRequestFormParams

from ipybox.mcp_server.shown_call import BAR, LINES, MAX_NAME, ascii_name, cut_columns, wrapped
from ipybox.support.printable import printable
from ipybox.tool_exec.approval.patterns import name_glob
from ipybox.workspace.registrations import Registration

#: The fields of the two forms, and the first one's choices besides the tools that only read and stay offline.
FIELD, NAMES = "unasked", "tools"
CHOOSE, NONE = "choose", "none"

#: Maximum characters of the names in a form. It offers the tools that stay offline only if it shows all of their names.
MAX_NAMES = 4000

#: Shows a form and returns what the user enters.
Ask = Callable[[ElicitRequestFormParams], Awaitable[dict[str, Any]]]


async def agreed(server_name: str, record: Registration, ask: Ask) -> Registration:
    """Asks about a server unless its user has decided; returns its record, with the decision if there is one.

    It isn't asked about if not every client shows all of how it is started: `ipybox trust` does.
    """
    launch = wrapped(f"{BAR}{printable(record.launch)}", LINES - 1)
    if not record.undecided or len(launch) >= LINES:
        return record
    offline = record.offline
    all_shown = offline and _fitting(offline) == offline
    choices = [*([f"read-only tools that stay offline ({len(offline)})"] if all_shown else []), CHOOSE, NONE]
    choice = (await ask(_first_form(server_name, record, launch, choices))).get(FIELD)
    if choice not in choices:
        return record
    if choice == CHOOSE:
        names = (await ask(_names_form(server_name, record))).get(NAMES)
        if not isinstance(names, str):
            return record
        offline = _chosen(record, [each for each in re.split(r"[,\s]+", names) if each])
    return await asyncio.to_thread(record.agree, [] if choice == NONE else offline)


def _chosen(record: Registration, entered: list[str]) -> list[str]:
    """Returns the tools with these names, and those that the form lists and match one of them as a pattern.

    A server can name a tool that the form doesn't list `*`: what contains a wildcard is no name.
    """
    patterns = [name_glob(each) for each in entered]
    listed = [name for names in _kinds(record).values() for name in _fitting(names)]
    chosen = {name for name in listed if any(pattern.found_in(name) for pattern in patterns)}
    chosen |= {each for each in entered if not re.search("[*?]", each)}
    return [name for name in record.tools if name in chosen]


def _first_form(
    server_name: str, record: Registration, launch: list[str], choices: list[str]
) -> ElicitRequestFormParams:
    reading = f" {_shortened('Stay offline', record.offline)}" if record.offline else ""
    claim = f"It says: {record.split}. ipybox can't check that.{reading}"
    field = {"type": "string", "title": "Run without asking", "enum": choices, "description": claim}
    return _form(server_name, "let read-only tools run without asking?", launch, FIELD, field)


def _names_form(server_name: str, record: Registration) -> ElicitRequestFormParams:
    lines = [_shortened(kind, names) for kind, names in _kinds(record).items() if names]
    hint = "Names, separated by commas; * and ? are wildcards for those listed"
    field = {"type": "string", "title": "Tools", "description": hint}
    return _form(server_name, "which tools run without asking?", lines, NAMES, field)


def _form(
    server_name: str, question: str, lines: list[str], name: str, field: dict[str, Any]
) -> ElicitRequestFormParams:
    about = f"MCP server {cut_columns(ascii_name(server_name), MAX_NAME)}: {question}"
    schema = {"type": "object", "properties": {name: field}, "required": [name]}
    return ElicitRequestFormParams(message="\n".join([about, *lines]), requested_schema=schema)


def _listed(what: str, names: list[str]) -> str:
    return f"{what}: {', '.join(map(ascii_name, names))}"


def _kinds(record: Registration) -> dict[str, list[str]]:
    """Returns the tools that a form lists, by what the server says about them: those that write aren't among them."""
    offline = record.offline
    return {"Only read": offline, "Also reach the internet": [name for name in record.reading if name not in offline]}


def _shortened(kind: str, names: list[str]) -> str:
    """Returns a list of names, or its beginning if it is too long."""
    text = _listed(kind, fitting := _fitting(names))
    return text if len(fitting) == len(names) else f"{text}… Not all fit: `ipybox trust` shows the others"


def _fitting(names: list[str]) -> list[str]:
    """Returns the names, or the first ones, that fit into a form."""
    lengths = accumulate(len(ascii_name(name)) + len(", ") for name in names)
    return [name for name, length in zip(names, lengths, strict=True) if length <= MAX_NAMES]
