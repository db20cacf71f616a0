"""`ipybox clean`: shows what ipybox keeps on this machine, and removes it."""

from collections.abc import Sequence
from pathlib import Path

from ipybox.cli.output import agreed, say, say_json, say_table
from ipybox.sandbox.removal import RemovablePlace, places, remove, size, used_places
from ipybox.support.sizes import format_bytes


def clean(workspace: Path, saved: Sequence[str], *, yes: bool, as_json: bool) -> int:
    """Shows what would be removed with its size, asks, and removes it. Returns the exit status.

    Args:
        workspace: The workspace.
        saved: Directories of it that are to be removed, too.
        yes: Whether to remove without a question.
        as_json: Whether to print JSON. Then nothing is asked, and only `yes` removes anything.
    """
    found = places(workspace, saved)
    used = used_places(found)
    removable = [place for place in found if place not in used]
    sizes = {place: 0 if place in used else size(place.path) for place in found}
    if not as_json:
        _show(removable, used, sizes)
        if not removable or (not yes and not agreed("Remove all of this?", "nothing was removed")):
            return 1 if used or removable else 0
    kept = dict.fromkeys(used, "in use")
    if yes or not as_json:
        kept |= remove(removable, workspace)
    states = {place: kept.get(place, "removed" if yes or not as_json else "found") for place in found}
    if as_json:
        say_json(
            [
                {"path": str(place.path), "content": place.what, "bytes": sizes[place], "state": state}
                for place, state in states.items()
            ]
        )
    else:
        for place, state in kept.items():
            if place not in used:
                say(_REASONS[state].format(place.path), style="yellow")
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
