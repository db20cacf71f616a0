"""`ipybox tools`: shows people a workspace's tools and saved code actions, without importing or running them."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ipybox.cli.command import as_json, command
from ipybox.cli.output import say, say_code, say_json, say_table, tell
from ipybox.cli.parsing import Failure
from ipybox.codeact.interface import interface
from ipybox.codeact.library import GENTOOLS, MCPTOOLS, Library
from ipybox.codeact.listing import named
from ipybox.codeact.search import search
from ipybox.codeact.tool_info import gentool_cards, mcp_cards
from ipybox.support.gc_pause import gc_paused
from ipybox.workspace.registrations import registrations

#: The label for the tools of each root.
_KINDS = {GENTOOLS: "saved", MCPTOOLS: "MCP"}


@command("tools", "QUERY is a server or category (github), a tool (github.list_commits), or search terms.")
@as_json
@click.argument("query", nargs=-1)
def tools(workspace: Path, query: Sequence[str], as_json: bool) -> int:
    """Prints the requested tools, or how to call the tool if there is only one; returns the exit status."""
    asked = " ".join(query)
    library = Library(workspace)
    with gc_paused(own=True):  # syntax trees are many objects, none of which is garbage
        every = [*gentool_cards(library), *mcp_cards(library)]
    cards = (named(every, asked) or search(every, asked)) if asked else every
    for error in library.unreadable.values():
        tell(error)
    if as_json:
        say_json([card.described() for card in cards])
    elif every and not cards:
        raise Failure(f"no tool matches {asked!r}\n`ipybox tools` lists all {len(every)}")
    elif not every:
        say(f"No tools in {workspace} yet: agents add them by registering MCP servers and saving code actions.")
    elif len(cards) == 1 and asked:
        say_code(interface(cards[0]))
    else:
        rows = [(str(card.name), _KINDS[card.root], card.summary) for card in cards]
        say_table([f"Tool ({len(cards)})", "Kind", "What it does"], rows)
        records = {} if asked else registrations(library.workspace.root / MCPTOOLS)
        for name, record in records.items():
            if record.reading:
                say(f"{name}: {record.split}, {len(record.unasked)} run without asking")
        if sys.stdout.isatty():
            say("\n`ipybox tools NAME` shows how to call one.", dim=True)
    return 0
