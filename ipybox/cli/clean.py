"""`ipybox clean`: shows what ipybox keeps on this machine, and removes it."""

from collections.abc import Sequence
from pathlib import Path

import click

from ipybox.cli.command import as_json, command, without_question
from ipybox.cli.output import agreed, say, say_json, say_table
from ipybox.sandbox.removal import RemovablePlace, places, remove, size, used_places
from ipybox.support.sizes import format_bytes

#: Workspace directories that are removed only if named, because they contain your and the agent's work.
SAVED = ("mcptools", "mcpparse", "gentools", "images", "toolfiles")

#: Why a place was not removed.
_REASONS = {
    "started": "kept {}, because ipybox was started after you were asked: stop it and run `ipybox clean` again",
    "failed": "could not remove {} completely: remove the rest yourself",
}

_MORE = """DIR is a workspace directory to remove as well: mcptools, mcpparse, gentools, images or toolfiles.

ipybox keeps a record of trusted files and registered servers in one place for all workspaces. If you remove it, other
workspaces keep their files, but you need to trust their settings and register their servers again."""


@command("clean", _MORE)
@click.argument("directory", nargs=-1, type=click.Choice(SAVED), metavar="[DIR]...")
@without_question
@as_json
def clean(workspace: Path, directory: Sequence[str], yes: bool, as_json: bool) -> int:
    """Shows what would be removed and its size, asks for confirmation, and removes it; returns the exit status.

    With JSON, it doesn't ask, and removes something only with `yes`.
    """
    found = places(workspace, directory)
    kept = dict.fromkeys(used_places(found), "in use")
    sizes = {place: size(place.path) for place in found if place not in kept}
    if not as_json:
        _show(found, sizes)
        if not sizes or not (yes or agreed("Remove all of this?", "nothing was removed")):
            return 1 if found else 0
    removes = yes or not as_json
    if removes:
        kept |= remove([*sizes], workspace)
    if as_json:
        states = {place: kept.get(place, "removed" if removes else "found") for place in found}
        rows = ((str(place.path), place.what, sizes.get(place, 0), states[place]) for place in found)
        say_json([dict(zip(("path", "content", "bytes", "state"), row, strict=True)) for row in rows])
    else:
        for place in filter(kept.__contains__, sizes):
            say(_REASONS[kept[place]].format(place.path), fg="yellow")
        say(f"removed {format_bytes(sum(number for place, number in sizes.items() if place not in kept))}")
    return 1 if kept else 0


def _show(found: list[RemovablePlace], sizes: dict[RemovablePlace, int]) -> None:
    rows = [(format_bytes(sizes[each]) if each in sizes else "in use", str(each.path), each.what) for each in found]
    if rows:
        say_table(["Size", "Place", "Content"], rows, ["" if each in sizes else "yellow" for each in found])
    if len(sizes) < len(found):
        say("ipybox is running and may be using some of this: stop it and run `ipybox clean` again to remove the rest.")
    if not sizes:
        say("nothing to remove")
