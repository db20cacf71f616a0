"""Each rule, broken in a workspace in which all else is well."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ipybox.codeact import check, imported
from ipybox.codeact.checker import SHOWN, inspect
from ipybox.codeact.imported import Problem
from ipybox.mcp_apigen.package.files import render_package
from tests.codeact.conftest import COMMITS, PARSER, SEARCH, SEARCH_PARSER, TRACKER_APPENDED, TRACKER_PARSER, append
from tests.codeact.faults import IMPL_FILE, IMPLEMENTATIONS, IMPORTS, INTERFACES, PACKAGES, Case
from tests.codeact.parser_faults import PARSERS
from tests.mcp_apigen.test_package import case_tools
from tests.written_packages import write_package

FILES = ("__init__", "api", "impl")
TABLES = (INTERFACES, IMPLEMENTATIONS, PACKAGES, IMPORTS, PARSERS)
CASES = {name: case for table in TABLES for name, case in table.items()}
assert len(CASES) == sum(map(len, TABLES)), "a fault that has the name of another one is not tested"


def problems(workspace: Path) -> list[Problem]:
    return inspect(workspace).problems


def spoil(workspace: Path, case: Case) -> str:
    """Makes the fault, and returns what the file then holds."""
    path = workspace / case.path
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text() if path.exists() else ""
    assert case.old in text
    # A tool's module is spoiled from its end, where a parser's part is.
    spoiled = case.new.join(text.rsplit(case.old, 1)) if case.old else text + case.new
    path.write_text(spoiled)
    return spoiled


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_fault_is_named_with_its_place_and_its_remedy(good: Path, case: Case):
    spoiled = spoil(good, case)
    where = case.where or case.path
    text = spoiled if where == case.path else (good / where).read_text() if (good / where).is_file() else ""
    lines = [number for number, line in enumerate(text.splitlines(), 1) if case.line and case.line in line] or [1]

    found = [each for each in problems(good) if case.message in each.message and case.remedy in each.remedy]

    assert [(each.path, each.line in lines) for each in found] == [(where, True)], list(map(str, problems(good)))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: next(iter(table)))
def test_what_an_agent_sees_lists_all_problems(good: Path, table: dict[str, Case]):
    spoil(good, next(iter(table.values())))

    assert check(workspace=good).splitlines() == [*map(str, problems(good))] != []


@pytest.mark.parametrize("file", [f"{file}.py" for file in FILES])
def test_a_missing_file_of_a_saved_code_action_is_named(good: Path, file: str):
    (good / COMMITS / file).unlink()

    (problem,) = problems(good)

    assert (problem.path, problem.line, problem.message) == (f"{COMMITS}/{file}", 1, "the file is missing")
    assert "__init__.py, api.py and impl.py" in problem.remedy


@pytest.mark.parametrize("path", [SEARCH, SEARCH_PARSER, *(f"{COMMITS}/{file}.py" for file in FILES)])
def test_an_emptied_file_is_a_fault(good: Path, path: str):
    (good / path).write_text("")

    # The package imports its interface.
    importing = path.replace("api.py", "__init__.py")
    assert {problem.path for problem in problems(good)} == {importing}


def test_a_workspace_in_which_all_is_well_is_ok(good: Path):
    assert problems(good) == []
    assert check(workspace=good) == "ok: 2 gentools, 2 parsers"


def test_names_for_type_checkers_only_and_own_classes_of_an_implementation_are_ok(good: Path):
    api, impl = good / COMMITS / "api.py", good / COMMITS / "impl.py"
    checked = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import this\n\n\nclass Commit"
    api.write_text(api.read_text().replace("class Commit", checked, 1))
    append(impl, "\n\nclass Own:\n    pass\n")

    assert problems(good) == []


def test_parsers_of_all_kinds_of_generated_tools_are_ok(tmp_path: Path):
    specs = case_tools()
    write_package(tmp_path / "mcptools" / "cases", render_package("cases", {"command": "x"}, specs, "seal"))
    (tmp_path / "mcpparse" / "cases").mkdir(parents=True)
    for path in (tmp_path / "mcptools" / "cases").glob("*.py"):
        if path.stem != "__init__":
            append(path, TRACKER_APPENDED.replace("tracker.search_tickets", f"cases.{path.stem}"))
            parser = TRACKER_PARSER.replace("tracker.search_tickets", f"cases.{path.stem}")
            (tmp_path / "mcpparse" / "cases" / path.name).write_text(parser)

    assert check(workspace=tmp_path) == f"ok: 0 gentools, {len(specs)} parsers"


def test_an_empty_workspace_is_ok(tmp_path: Path):
    assert check(workspace=tmp_path) == "ok: 0 gentools, 0 parsers"


def test_a_workspace_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(NotADirectoryError, match="pass the workspace as `workspace=`"):
        check(workspace=tmp_path / "gone")


def test_what_python_leaves_behind_is_no_code_action(good: Path):
    (good / "gentools/github/removed/__pycache__").mkdir(parents=True)
    (good / "gentools/.git/x").mkdir(parents=True)

    assert problems(good) == []


def test_many_faults_are_told_in_part(good: Path):
    for number in range(SHOWN + 5):
        directory = good / f"gentools/github/x{number}"
        directory.mkdir()
        (directory / "__init__.py").touch()
        (directory / "api.py").touch()

    assert check(workspace=good).splitlines()[-1] == "… and 5 more"
    assert len(problems(good)) == SHOWN + 5


def test_a_mended_fault_is_ok_at_once(good: Path):
    path = good / IMPL_FILE
    text = path.read_text()
    path.write_text(f"{text}\nraise OSError(1)\n")
    assert "OSError: 1" in check(workspace=good)
    path.write_text(f"{text}\nassert len('1')#\n")

    assert check(workspace=good) == "ok: 2 gentools, 2 parsers"


def test_the_session_sees_what_was_checked(good: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(good)
    monkeypatch.setattr(sys, "path", [str(good), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    namespace: dict[str, Callable[..., object]] = {}
    exec("from mcpparse.github.search_repositories import parse", namespace)
    text = '{"items": [{"name": "a", "stars": 1}]}'
    before = namespace["parse"](text)
    (good / SEARCH_PARSER).write_text(PARSER.replace('each["name"]', '"changed"'))
    assert check() == "ok: 2 gentools, 2 parsers"

    exec("from mcpparse.github.search_repositories import parse", namespace)

    assert "name='a'" in str(before)
    assert "name='changed'" in str(namespace["parse"](text))
    exec("import gentools.github.commits_of_top_repos.impl", namespace)
    assert check() == "ok: 2 gentools, 2 parsers"


def test_checking_leaves_the_process_as_it_was(good: Path):
    before = (Path.cwd(), sys.path[:], sys.stdout, sys.dont_write_bytecode, set(sys.modules))
    append(good / IMPL_FILE, "\nimport sys\nsys.path.append('x')\n")

    assert check(workspace=good) == "ok: 2 gentools, 2 parsers"
    assert (Path.cwd(), sys.path[:], sys.stdout, sys.dont_write_bytecode) == before[:4]
    assert [name for name in set(sys.modules) - before[4] if name.startswith(("gentools", "mcp"))] == []
    assert not list(good.rglob("__pycache__"))


def test_what_imports_print_is_dropped(good: Path, capfd: pytest.CaptureFixture[str]):
    append(good / IMPL_FILE, "\nimport sys\nprint('out' * 1000)\nprint('err', file=sys.stderr)\n")

    assert check(workspace=good) == "ok: 2 gentools, 2 parsers"
    assert capfd.readouterr() == ("", "")


def test_logging_that_an_import_sets_up_writes_later(good: Path, capfd: pytest.CaptureFixture[str]):
    set_up = "import logging, sys\nsys.log = logging.StreamHandler()\nsys.log.emit(logging.makeLogRecord({'msg': 'a'}))"
    append(good / IMPL_FILE, f"\n{set_up}\n")
    assert check(workspace=good) == "ok: 2 gentools, 2 parsers"
    handler: logging.Handler = sys.__dict__.pop("log")

    handler.emit(logging.makeLogRecord({"msg": "b"}))

    assert capfd.readouterr().err == "b\n"


def test_an_interrupt_ends_the_check(good: Path):
    append(good / IMPL_FILE, "\nraise KeyboardInterrupt\n")

    with pytest.raises(KeyboardInterrupt):
        check(workspace=good)


@pytest.mark.parametrize(
    "code",
    [
        "while True:\n    pass",
        "while True:\n    try:\n        1 / 0\n    except Exception:\n        pass",
        "try:\n    while True:\n        pass\nexcept:\n    pass\nwhile True:\n    pass",
    ],
    ids=["plain", "catches_exceptions", "catches_the_first_one"],
)
def test_an_import_that_never_ends_is_a_fault(good: Path, code: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(imported, "_TIMEOUT", 0.2)
    append(good / IMPL_FILE, f"\n{code}\n")

    (problem,) = problems(good)

    assert (good / problem.path) == good / IMPL_FILE
    assert problem.message.endswith("failed: TimeoutError: it takes longer than 0.2 s")
