"""`ipybox clean`: shows what ipybox keeps on this machine, and removes it."""

from collections.abc import Sequence
from pathlib import Path

import click

from ipybox.cli.command import as_json, command, without_question
from ipybox.cli.output import agreed, say, say_json, say_table
from ipybox.cli.parsing import Mistake
from ipybox.sandbox.removal import RemovablePlace, places, remove, size, used_places
from ipybox.support.sizes import format_bytes

#: Directories of a workspace that are removed only by name, because they contain work of code and people.
SAVED = ("mcptools", "mcpparse", "gentools", "images", "toolfiles")


_MORE = """DIR is a workspace directory to remove as well: mcptools, mcpparse, gentools, images or toolfiles.

ipybox stores trust and registrations for all workspaces in one place. Other workspaces keep their files, but you need
to trust their settings and register their servers again."""


@command("clean", _MORE)
@click.argument("saved", nargs=-1, metavar="[DIR]...")
@without_question
@as_json
def clean(workspace: Path, saved: Sequence[str], yes: bool, as_json: bool) -> int:
    """Shows what would be removed with its size, asks, and removes it; returns the exit status.

    With JSON, nothing is asked, and only `yes` removes anything.
    """
    if wrong := [name for name in saved if name not in SAVED]:
        raise Mistake(f"clean can't remove {wrong[0]!r}", f"it removes only {', '.join(SAVED)} by name")
    found = places(workspace, saved)
    used = used_places(found)
    removable = [place for place in found if place not in used]
    sizes = {place: 0 if place in used else size(place.path) for place in found}
    if not as_json:
        _show(removable, used, sizes)
        if not removable or not (yes or agreed("Remove all of this?", "nothing was removed")):
            return 1 if used or removable else 0
    removes = yes or not as_json
    kept = dict.fromkeys(used, "in use") | (remove(removable, workspace) if removes else {})
    if as_json:
        states = {place: kept.get(place, "removed" if removes else "found") for place in found}
        say_json(
            [
                {"path": str(place.path), "content": place.what, "bytes": sizes[place], "state": state}
                for place, state in states.items()
            ]
        )
    else:
        for place, state in kept.items():
            if state in _REASONS:
                say(_REASONS[state].format(place.path), style="yellow")
        say(f"removed {format_bytes(sum(sizes[place] for place in removable if place not in kept))}")
    return 1 if kept else 0


#: Why a place is still there.
_REASONS = {
    "started": "kept {}, because ipybox was started after you were asked: stop it and run `ipybox clean` again",
    "failed": "could not remove {} completely: remove the rest yourself",
}


def _show(removable: list[RemovablePlace], used: list[RemovablePlace], sizes: dict[RemovablePlace, int]) -> None:
    rows = [(format_bytes(sizes[place]), str(place.path), place.what) for place in removable]
    rows += [("in use", str(place.path), place.what) for place in used]
    if rows:
        say_table(["Size", "Place", "Content"], rows, styles=[""] * len(removable) + ["yellow"] * len(used))
    if used:
        say("ipybox is running and may be using some of this: stop it and run `ipybox clean` again to remove the rest.")
    if not removable:
        say("nothing to remove")
