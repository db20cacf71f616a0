"""Marks each test with the suites that it belongs to, spreads the tests over processes, and counts what could not run.

A test says by its folder and its fixtures what it protects, so a new one is in its suite by itself. Only a test that
runs a kernel or a sandbox without the fixture `mode` is marked by hand. `make test` selects by these marks.
"""

import ast
import gc
import os
import sys
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter
from xdist.scheduler import LoadScopeScheduling  # pyright: ignore[reportMissingTypeStubs] - it has none

from ipybox.sandbox.findings import Finding, Install
from ipybox.sandbox.preflight import diagnose
from tests.seed import SEED

#: The marks of a folder or module of tests; those of a module count in place of its folder's. What has none of `slow`,
#: `docker`, `claude`, `fuzz`, `soak` and of the suites with an environment of their own (`attach`, `clients`, `cluster`
#: and `servers`) is part of `make test`, and so is a new module; `slow` are those that take longest and do not test a
#: main promise by themselves.
FOLDERS = {
    "attach": ("attach",),
    "audit/test_executor.py": ("slow",),
    "audit/test_server.py": ("slow",),
    "benchmarks": ("slow",),
    "bfcl": ("slow",),
    "benchmarks/test_economics.py": ("claude",),
    "benchmarks/test_performance.py": (),
    "claude": ("claude",),
    "cli/test_attach.py": ("slow",),
    "cli/test_clean.py": ("slow",),
    "cli/test_import.py": ("slow",),
    "clients": ("clients",),
    "cluster": ("cluster",),
    "code_exec/executor": ("user",),
    "code_exec/executor/test_cancellation.py": ("python", "user"),
    "code_exec/executor/test_functions.py": ("python", "user"),
    "code_exec/executor/test_outputs.py": ("python", "user"),
    "code_exec/executor/test_states.py": ("python", "user"),
    "code_exec/executor/test_time_limits.py": ("python", "user"),
    "code_exec/executor/test_variables.py": ("python", "user"),
    "codeact/test_check.py": ("python",),
    "code_exec/test_lifecycle.py": ("slow",),
    "conformance": ("slow",),
    "docker": ("docker",),
    "remote/test_relayed.py": ("cluster",),
    "faults": ("slow",),
    "faults/test_executor.py": ("slow",),
    "faults/test_model.py": ("slow", "fuzz"),
    "fuzz_readers": ("fuzz",),
    "fuzz_readers/test_completeness.py": (),
    "guest": ("python",),
    "guest/confine": (),  # the system's work, not Python's
    "guest/landlock": (),
    "guest/test_descendants.py": (),
    "guest/test_last_output.py": (),  # how output passes, and when kernels start and end
    "guest/test_out_stream.py": (),
    "guest/test_preload.py": (),
    "guest/test_spare.py": (),
    "guest/tools": (),  # messages and files
    "guest/tools/test_client.py": ("python",),
    "kernel_mgr/test_gateway.py": ("slow",),
    "kernel_mgr/test_kernel_processes.py": ("slow",),
    "kernel_mgr/test_limits.py": ("slow",),
    "kernel_mgr/test_server.py": ("slow",),
    "mcp_apigen/test_defaults.py": ("python",),
    "mcp_apigen/test_fuzz.py": ("fuzz",),
    "mcp_apigen/test_generator.py": ("python",),
    "mcp_apigen/test_hostile.py": ("slow",),
    "mcp_apigen/test_naming.py": ("python",),
    "mcp_apigen/test_real_servers.py": ("slow",),
    "mcp_apigen/test_schemas.py": ("python",),
    "mcp_client/oauth": ("slow",),
    "mcp_fuzz": ("fuzz",),
    "mcp_server/test_approver.py": ("slow",),
    "mcp_server/test_http.py": ("slow",),
    "mcp_server/test_inspector.py": ("slow",),
    "mcp_server/test_kernel_sessions.py": ("slow",),
    "published": ("servers",),
    "published/test_report.py": (),
    "sandbox": ("user",),
    "sandbox/test_environment_in_home.py": ("user", "slow"),
    "sandbox/test_git_exclude.py": ("user", "slow"),
    "sandbox/test_limits.py": ("user", "slow"),
    "sandbox/test_workspace.py": ("user", "slow"),
    "security": ("security",),
    # Not for an ordinary user: their processes together can have no more descriptors on their way than one may open,
    # which the plain kernel uses up for all that follows.
    "security/boundary": ("security", "slow"),
    # Files are closed by the same mounts for root, who can do more to them. Namespaces and signals differ.
    "security/test_hostile_repository.py": ("security", "user", "slow"),
    "security/test_network.py": ("security", "user"),
    "security/test_processes.py": ("security", "user"),
    "soak": ("soak",),
    "test_docs.py": ("slow",),
    "test_docs_site.py": ("slow",),
    "test_earlier_guides.py": ("slow",),
    "test_examples.py": ("slow",),
    "test_generated_docs.py": ("slow",),
    "test_package.py": ("slow",),
    "test_readme.py": ("slow",),
    "test_real_servers.py": ("slow",),
    "tool_exec/test_functions.py": ("python",),
    "workspace/test_imports.py": ("python",),
    "kernel_mgr/packages": ("slow",),
    "workspace/test_npx.py": ("slow",),
    "mcp_client/test_stdio_servers.py": ("slow",),
}

#: Marks that tests have by their place only: all tests of a module, or none.
BY_PLACE = {"attach", "claude", "clients", "cluster", "fuzz", "python", "servers", "soak", "user"}

#: Where tests with the fixture `mode` also run in a sandbox, because it changes what happens there: processes, signals,
#: files, start and end. Elsewhere they would run the same code twice; `ALL_MODES=1` has them do so. A single test picks
#: its modes itself (`both_modes` in `tests/conftest.py`).
BOTH_MODES = (
    "bfcl/",  # tool calls, approvals and sessions, from outside
    "cli/test_clean.py/",  # what sandboxes leave
    "cluster/",  # sandboxes of nodes
    "code_exec/executor/",  # what applications rely on: interrupts, limits, images, files
    "code_exec/test_lifecycle.py/",
    "code_exec/test_shell_commands.py/",
    "remote/test_executor.py/",  # what code may install
    "faults/test_matrix.py/",  # processes and disks that fail within and around the sandbox
    "faults/test_model.py/",
    "faults/test_resources.py/",
    "faults/test_storage.py/",
    "faults/test_strays.py/",
    "guest/landlock/",
    "guest/test_spare.py/",  # kernels that are forked within the sandbox
    "guest/test_template.py/",
    "kernel_mgr/test_server.py/",  # gateways within the sandbox
    "sandbox/",
    "security/",
    "soak/",
    "test_skill.py/",  # the skill, as the plugin codeact-sandbox has it
    "mcp_client/test_stdio_servers.py/",
    "support/test_scratch.py/",
    "workspace/test_",  # what code can write, and what is believed of it
    "kernel_mgr/transfer/",
    "workspace/trust/",
)

#: Where `make test` runs sandboxes. Those of other places are part of `make test-rest`.
SANDBOXED_FIRST = ("sandbox/", "security/")

#: The marks of tests that use a fixture. Those of the fixture `mode` also have the mark `sandbox` in that mode.
FIXTURES = {"mode": ("kernel",), "confined": ("kernel", "sandbox"), "sandbox": ("sandbox",), "engine": ("docker",)}

#: Marks that say what a test runs or is about. A test with none of them is a unit test.
KINDS = (
    *("kernel", "sandbox", "security", "docker", "claude", "fuzz", "soak"),
    *("attach", "clients", "cluster", "servers"),
)

#: Tests that run in one process, one after the other. Those of each line share what takes long to make: an engine and
#: images of Docker, with the plugins that run in it; a virtual environment of the README.
TOGETHER = (
    (
        "tests/docker/",
        "tests/claude/test_marketplace.py",
        "tests/claude/test_session.py",
        "tests/claude/test_uninstall.py",
    ),
    ("tests/test_readme.py",),
)

#: Folders and modules that take longest, with which processes begin, in this order: else the other ones would wait for
#: the last.
LONGEST = (
    "docker/",
    "claude/",
    "kernel_mgr/packages/install/",
    "mcp_server/test_server.py/",
    "test_readme.py/",
    "faults/",
    "test_real_servers.py/",
    "soak/",
    "security/",
)

#: A format checker of jsonschema, which no test needs. To import it takes each process more than a second.
UNNEEDED = "rfc3987_syntax"

#: Set where no test may be left out, as in CI.
COMPLETE = "IPYBOX_TEST_COMPLETE"

#: The parameters of tests that run a sandbox.
SANDBOXED = ("sandbox", "codeact-sandbox")

#: The reason of tests that are left out.
LEFT_OUT = "sandboxes can't start here"

_ROOT = Path(__file__).parent
_problems = pytest.StashKey[list[Finding]]()
_left_out = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Finds out whether sandboxes can start, and has nothing imported that is slow and not needed."""
    sys.modules[UNNEEDED] = None  # pyright: ignore[reportArgumentType] - what makes an import fail
    config.stash[_problems] = [finding for finding in diagnose() if finding.problem is not None]
    if config.stash[_problems] and os.environ.get(COMPLETE):
        raise pytest.UsageError(f"no test may be left out, but {LEFT_OUT}: {_remedy(config)}")


def pytest_report_header() -> str:
    """Prints what repeats tests that make up their input."""
    return f"SEED={SEED}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves folders and modules alone whose place rules out that a test of theirs has the marks."""
    if _ROOT not in collection_path.parents:
        return None
    within = [marks for place, marks in FOLDERS.items() if f"{place}/".startswith(_place(collection_path))]
    possible = [_placed(collection_path), *within]
    return None if any(may_have(config.option.markexpr, {*marks}) for marks in possible) else True


def may_have(expression: str, placed: set[str]) -> bool:
    """Returns whether an expression of `-m` may pick a test of a module whose tests all have these marks.

    To import a module takes long, so that those are left alone of which the expression picks none.
    """
    try:
        _, picked = _outcomes(ast.parse(expression, mode="eval").body, placed)
    except SyntaxError:  # none is given, or pytest says what is wrong with it
        return True
    return picked


def _outcomes(term: ast.expr, placed: set[str]) -> tuple[bool, bool]:
    """Returns whether each test of a module fits a term, and whether one may."""
    match term:
        case ast.BoolOp(op, terms):
            every, some = zip(*(_outcomes(each, placed) for each in terms), strict=True)
            combine = all if isinstance(op, ast.And) else any
            return combine(every), combine(some)
        case ast.UnaryOp(operand=negated):
            every, some = _outcomes(negated, placed)
            return not some, not every
        case ast.Name(mark):
            return mark in placed, mark in placed or mark not in BY_PLACE
        case _:
            return False, True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps the garbage collector away from the tests themselves: to look through all of them takes it a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the tests, after their modules have done so, and has those of the longest modules run first.

    Those that would run the same code in a sandbox once more are deselected, see `BOTH_MODES`.
    """
    once_more: list[pytest.Item] = []
    kept: list[pytest.Item] = []
    for item in items:
        (once_more if _repeats(item) else kept).append(item)
    config.hook.pytest_deselected(items=once_more)
    items[:] = kept
    for item in items:
        for mark in _marks(item):
            item.add_marker(mark)
    items.sort(key=_turn)


def _repeats(item: pytest.Item) -> bool:
    """Tells whether a test runs in a sandbox what it does without one as well, with the same outcome."""
    callspec: Any = getattr(item, "callspec", None)
    if callspec is None or callspec.params.get("mode") != "sandbox" or "ALL_MODES" in os.environ:
        return False
    picked = any("mode" in mark.args[0] for mark in item.iter_markers("parametrize"))
    return not picked and not _place(item.path).startswith(BOTH_MODES)


def _turn(item: pytest.Item) -> int:
    """Returns which of `LONGEST` a test is part of, or a higher number."""
    place = _place(item.path)
    return next((turn for turn, longest in enumerate(LONGEST) if place.startswith(longest)), len(LONGEST))


@cache
def _place(module: Path) -> str:
    """Returns where a module is, with a slash behind it, as behind each folder."""
    return f"{module.relative_to(_ROOT).as_posix()}/"


@cache
def _placed(module: Path) -> tuple[str, ...]:
    """Returns the marks that all tests of a module have."""
    path = _place(module)
    place = max((place for place in FOLDERS if path.startswith(f"{place}/")), key=len, default=None)
    return FOLDERS[place] if place else ()


def _marks(item: pytest.Item) -> list[str]:
    """Returns the marks that a test gets by its place, its fixtures and their parameters."""
    path = _place(item.path)
    marks = [*_placed(item.path)]
    fixtures: list[str] = getattr(item, "fixturenames", [])
    callspec: Any = getattr(item, "callspec", None)
    parameters: list[object] = [] if callspec is None else [*callspec.params.values()]
    marks += [mark for fixture in fixtures for mark in FIXTURES.get(fixture, ())]
    if any(isinstance(value, str) and value in SANDBOXED for value in parameters):
        marks += ["sandbox"] if path.startswith(SANDBOXED_FIRST) else ["sandbox", "slow"]
    elif "security" in marks and "mode" not in fixtures:
        marks += ["kernel", "sandbox"]
    if not any(mark in marks or item.get_closest_marker(mark) for mark in KINDS):
        marks.append("unit")
    return marks


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Hides bubblewrap from tests that are not marked as running a sandbox, and from their fixtures."""
    with pytest.MonkeyPatch.context() as patch:
        if sys.platform == "linux" and item.get_closest_marker("sandbox") is None:
            patch.setenv("PATH", str(_ROOT / "unmarked"), prepend=os.pathsep)
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leaves out the tests of the sandbox where sandboxes can't start."""
    if item.config.stash[_problems] and item.get_closest_marker("sandbox") is not None:
        pytest.skip(LEFT_OUT)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Gives each process whole modules, in one of the modes: what a module shares, it starts once."""
    return _Scheduling(config, log)


class _Scheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        for places in TOGETHER:
            if nodeid.startswith(places):
                return places[0]
        return f"{nodeid.split('::')[0]} {'[sandbox' in nodeid}"


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Counts what was left out, in all processes."""
    skipped = terminalreporter.stats.get("skipped", [])
    config.stash[_left_out] = sum(str(report.longrepr[2]).endswith(LEFT_OUT) for report in skipped)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Says last of all what was left out."""
    if count := config.stash.get(_left_out, 0):
        print(f"{count:,} tests of the sandbox were not run: {_remedy(config)}")


def _remedy(config: pytest.Config) -> str:
    """Returns the command that makes sandboxes work, or what is in the way."""
    problems = config.stash[_problems]
    packages = [
        found.remedy.package for found in problems if isinstance(found.remedy, Install) and found.remedy.as_root
    ]
    if packages:
        return f"sudo apt-get install {' '.join(packages)}"
    return "; ".join(map(str, problems))
