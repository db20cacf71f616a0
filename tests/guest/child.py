"""Runs functions in an interpreter of its own, which gives up what the sandbox's code must not have."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from tests.guest import outcomes
from tests.guest.reachable import srt_directory

TIMEOUT = 60
NOBODY = 65534
DONE = "done"
ROOT = os.geteuid() == 0
USERS = ["root", "ordinary"] if ROOT else ["ordinary"]

SETTINGS: dict[str, dict[str, list[str]]] = {
    "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
    "network": {"allowedDomains": [], "deniedDomains": []},
}


class Child:
    """Runs functions of `source` in an interpreter of its own, in a workspace with a directory `outside` next to it.

    It contains nothing of the project but copies of `source` and `modules`, because another user may have no access to
    the project.
    """

    #: The module with the functions, and with `report(functions, enforced)`.
    source: ModuleType
    #: The modules under test.
    modules: tuple[ModuleType, ...]

    def __init__(self, user: str, *, in_srt: bool):
        self.user = user
        self._other_user = ROOT and user == "ordinary"
        self._in_srt = in_srt
        # The interpreter of the tests may be in root's home. That of the system is there for everybody.
        python = shutil.which("python3", path=os.defpath) if self._other_user else sys.executable
        assert python is not None
        self._python = python

    def outcomes(self, functions: list[Callable[[], None]], *, enforced: bool = True) -> Mapping[str, str]:
        """Returns how each function ended, by its name; see `tests.guest.outcomes`."""
        names = ", ".join(function.__name__ for function in functions)
        return json.loads(self.run(f"report([{names}], {enforced})"))

    def run(self, code: str) -> str:
        """Returns what code prints that is added to `source`."""
        with tempfile.TemporaryDirectory() as directory:
            places = [Path(directory, name) for name in ("home", "workspace", "outside", "code")]
            for place in places:
                place.mkdir()
            home, workspace, outside, modules = places
            self.prepare(outside)
            for place in (Path(directory), *places, *outside.iterdir()):
                place.chmod(0o777)
            for module in (outcomes, *self.modules):
                (modules / f"{module.__name__.rpartition('.')[2]}.py").write_text(_without_packages(module))
            (modules / "script.py").write_text(self._script(code))
            (modules / "settings.json").write_text(json.dumps(SETTINGS))
            command = [self._python, str(modules / "script.py")]
            if self._in_srt:
                command = ["srt", "--settings", str(modules / "settings.json"), *command]
            path = os.pathsep.join([str(srt_directory()), os.environ["PATH"]])
            ended = subprocess.run(
                command,
                cwd=workspace,
                # srt has a socket there that is named by its process: one that was killed may have left the same.
                env={"PATH": path, "HOME": str(home), "TMPDIR": str(home)},
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                user=NOBODY if self._other_user else None,
                group=NOBODY if self._other_user else None,
                extra_groups=[] if self._other_user else None,
            )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def prepare(self, outside: Path) -> None:
        """Creates what the functions find outside of the workspace."""

    def _script(self, code: str) -> str:
        return f"{_without_packages(self.source)}\n\nif __name__ == '__main__':\n    import re\n\n    {code}\n"


def _without_packages(module: ModuleType) -> str:
    """Returns the source of a module, which imports others from its own directory."""
    source = Path(str(module.__file__)).read_text()
    source = re.sub(r"^from ipybox\.guest\.confine import", "from confine import", source, flags=re.MULTILINE)
    return re.sub(r"^from (ipybox|tests)\.guest import", "import", source, flags=re.MULTILINE)
