"""Nothing of a hostile schema is executed, and no such schema breaks a package; see `fuzz`, which runs by itself.

`FUZZ_SCHEMAS` sets how many schemas are tried; `SEED` makes other ones.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.mcp_apigen import golden, harmless
from tests.mcp_apigen.hostile import hostile_tool
from tests.seed import SEED
from tests.servers import ROOT

SCHEMAS = int(os.environ.get("FUZZ_SCHEMAS", "1500"))
PROCESSES = 2

# What the hook must refuse, run in a process of its own.
GUARDED = """
import importlib.machinery, os, socket, subprocess, sys, urllib.request
from pathlib import Path
from tests.mcp_apigen.audit import Audit, Violation

audit = Audit(Path(sys.argv[1]))
audit.deferred.add("list[Params]")
audit.arm()
try:
    {action}
except Violation:
    print("refused")
else:
    print("done")
"""


def test_hostile_schemas_execute_nothing_and_break_nothing() -> None:
    share = -(-SCHEMAS // PROCESSES)
    options = [["--seed", str(SEED), "--first", str(n * share), "--schemas", str(share)] for n in range(PROCESSES)]
    with ThreadPoolExecutor(PROCESSES) as pool:
        runs = list(pool.map(fuzz, options))
    assert not any(run.returncode for run in runs), "".join(run.stdout + run.stderr for run in runs)
    permissive, imported, accepted = (
        sum(json.loads(run.stdout)[name] for run in runs) for name in ("permissive", "imported", "accepted")
    )
    # Else most would have got permissive models, and nothing would be proved.
    assert permissive < 0.3 * SCHEMAS
    assert imported > 0.15 * SCHEMAS
    assert accepted > 0.5 * imported


def fuzz(options: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.mcp_apigen.fuzz", *options]
    # A hundredth of a second for each is several times what they take.
    timeout = 60 + SCHEMAS / 100
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.mark.parametrize(
    "action",
    [
        "os.system('true')",
        "subprocess.run(['true'])",
        "os.execv('/bin/true', ['true'])",
        "os.fork()",
        "socket.socket()",
        "socket.getaddrinfo('localhost', 1)",
        "urllib.request.urlopen('http://127.0.0.1:9')",
        "urllib.request.urlopen('file:///etc/passwd')",
        "open('outside', 'w')",
        "os.open('outside', os.O_CREAT)",
        "open(sys.argv[1] + '/../outside', 'w')",
        "os.mkdir('outside')",
        "os.rename(sys.argv[1], 'outside')",
        "eval('list[int]')",
        "exec('x = 1')",
        "exec(compile('x = 1', '<unknown>', 'exec'))",
        "compile('Params()', '<string>', 'eval')",
        "importlib.machinery.SourceFileLoader('evil', 'evil.py').load_module()",
    ],
)
def test_hook_refuses_what_is_not_the_packages_own(action: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "evil.py").write_text("")
    code = GUARDED.format(action=action)
    paths = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(root)], cwd=tmp_path, env=paths, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "refused\n", done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.py", "root"]


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("from . import", "import os\nfrom . import"),
        ("from . import CLIENT", "from . import other, CLIENT"),
        ('Choice("FieldsItem"', 'Choice("FieldsItem", evil'),
        ('"created_at": "created-at"', '"created_at": evil'),
        ("default=UNSET", "default=evil()"),
        ("Field(default=UNSET", "Field(evil()"),
        ('Default("table")', "Default(evil())"),
        ('Default("table")', 'Default("table", factory=evil)'),
        ("ge=1,", "ge=evil(),"),
        ("class FilterItem(Input):", "@evil\nclass FilterItem(Input):"),
        ("class FilterItem(Input):", "class Any(Input):"),
        ("    field: str", "    field: str = evil"),
        ("    field: str", "    field: evil"),
        ("    field: str", "    evil()"),
        ("min_length=1", "min_length=evil()"),
        ('"list[Ticket] | None"', '"evil() | None"'),
        ('Literal["v2"]', "Literal[evil()]"),
        ('"""A ticket as the tracker knows it."""', 'f"{evil()}"'),
        ('"""Searches tickets', 'f"""Searches tickets'),
        ("# What to look for.", "# type: ignore"),
        ("# What to look for.", "# Look  # noqa"),
        ("# What to look for.", "# nosec"),
        ("(params: Params)", "(params: Params = evil())"),
        ('"search-tickets"', '"delete-tickets"'),
        (" ...\n", " evil()\n"),
        ("@CLIENT.tool", "@evil\n@CLIENT.tool"),
        ("run_async = run.aio", "run_async = evil"),
        ("run.many_async", "evil()"),
    ],
)
def test_source_that_does_more_is_refused(good: str, bad: str) -> None:
    source = golden.render()["search_tickets.py"]
    harmless.Module(source, "search-tickets", "search_tickets")
    assert good in source
    with pytest.raises(harmless.Harmful):
        harmless.Module(source.replace(good, bad), "search-tickets", "search_tickets")


def test_hostile_tools_are_the_same_for_the_same_seed() -> None:
    assert [repr(hostile_tool(1, n)) for n in range(50)] == [repr(hostile_tool(1, n)) for n in range(50)]
    assert repr(hostile_tool(1, 0)) != repr(hostile_tool(2, 0))
