"""A child interpreter that can only write its workspace."""

import os
from pathlib import Path

from ipybox.guest import confine, landlock
from tests.guest.child import Child
from tests.guest.landlock import in_child


class RestrictedChild(Child):
    """Runs functions of `in_child`; unless `enforced` is false, after `restrict_writes()`."""

    source = in_child
    modules = (confine, landlock)

    def prepare(self, outside: Path) -> None:
        """Creates three pipes and a file."""
        for name in ("fifo", "linked", "moved"):
            os.mkfifo(outside / name)
        (outside / "file").write_text("as it was")
