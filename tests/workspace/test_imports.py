"""What a process imports once code can write a part of where it looks. Each test is a Python of its own."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.servers import WAIT

GUARD = """
import sys
from pathlib import Path
from ipybox.workspace.imports import guard_imports
from ipybox.workspace.writable import WritablePlaces
"""

MARK = "open('mark', 'w').close()\n"


def run(script: Path | str, workspace: Path, *options: str, python: Path | None = None) -> str:
    """Runs a script, or a module that an option names, in the workspace; returns what it writes."""
    done = subprocess.run(
        [python or sys.executable, *options, *([script] if script else [])],
        cwd=workspace,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("guarded", [False, True], ids=["control", "guarded"])
def test_a_late_import_finds_no_planted_module(tmp_path: Path, guarded: bool):
    guard = "guard_imports(WritablePlaces(Path.cwd()))" if guarded else ""
    script = tmp_path / "script.py"
    script.write_text(f"{GUARD}{guard}\nPath('packaging.py').write_text({MARK!r})\nimport packaging\n")

    run(script, tmp_path)

    assert (tmp_path / "mark").exists() is not guarded


def test_a_missing_module_is_missing_although_it_was_planted_and_the_error_says_why(tmp_path: Path):
    (tmp_path / "absent.py").write_text(MARK)
    script = tmp_path / "script.py"
    script.write_text(f"{GUARD}guard_imports(WritablePlaces(Path.cwd()))\ntry:\n import absent\n")
    script.write_text(script.read_text() + "except ModuleNotFoundError as error:\n print(error.name, error)\n")

    said = run(script, tmp_path)

    assert f"absent ipybox does not import 'absent' from {tmp_path}: code in the kernel can write there" in said
    assert not (tmp_path / "mark").exists()


def test_a_package_that_was_imported_before_gives_no_more_modules(tmp_path: Path):
    (tmp_path / "application").mkdir()
    (tmp_path / "application" / "__init__.py").write_text("")
    (tmp_path / "application" / "early.py").write_text("print('early')")
    (tmp_path / "application" / "late.py").write_text(MARK)
    script = tmp_path / "script.py"
    script.write_text(f"{GUARD}import application.early\nguard_imports(WritablePlaces(Path.cwd()))\n")
    script.write_text(script.read_text() + "import application.early\nimport application.late\n")

    said = run(script, tmp_path)

    assert "early" in said
    assert "ipybox does not import 'application.late'" in said
    assert not (tmp_path / "mark").exists()


def test_an_environment_behind_a_link_stays_after_the_link_was_swapped(tmp_path: Path):
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    venv.create(outside, symlinks=True)
    site = next(outside.glob("lib/python*/site-packages"))
    for package in ("one", "two"):
        (site / package).mkdir()
        (site / package / "__init__.py").write_text("")
        (site / package / "part.py").write_text("print('mine')")
    (site / "ipybox.pth").write_text("\n".join(sys.path[1:]))
    workspace.mkdir()
    (workspace / ".venv").symlink_to(outside)
    planted = workspace / "planted" / site.relative_to(outside)
    for package in ("one", "two"):
        (planted / package).mkdir(parents=True)
        (planted / package / "__init__.py").write_text(MARK)
        (planted / package / "part.py").write_text(MARK)
    script = tmp_path / "script.py"
    script.write_text(
        f"{GUARD}import one\nguard_imports(WritablePlaces(Path.cwd()))\n"
        "Path('.venv').unlink()\nPath('.venv').symlink_to('planted')\n"
        "import one.part, two.part\n"
    )

    said = run(script, workspace, python=workspace / ".venv" / "bin" / "python")

    assert said.splitlines() == ["mine", "mine"]
    assert not (workspace / "mark").exists()


@pytest.mark.parametrize("options", [["-m", "ipybox"], ["-m", "ipybox.mcp_server"]], ids=" ".join)
def test_the_command_line_imports_nothing_from_the_working_directory(tmp_path: Path, options: list[str]):
    # What Python imports for `-m` before it gets to ipybox, nobody can keep it from.
    (tmp_path / "early.py").write_text("import sys; print(*sys.modules)")
    early = {*run("", tmp_path, "-m", "early").split()}
    planted = {*sys.stdlib_module_names, "dotenv", "aiohttp", "mcp", "pydantic", "yaml", "rich"} - early
    assert {"typing", "argparse", "asyncio", "importlib"} & planted == {"typing", "argparse", "asyncio"}
    for name in planted:
        (tmp_path / f"{name}.py").write_text(f"open('mark', 'a').write({name!r})")

    said = run("", tmp_path, *options, "--version")

    assert said.strip()[0].isdigit(), said
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("name", ["pydantic", "annotated_types", "aiohttp", "jsonschema"])
def test_a_script_gets_ipybox_with_what_is_installed_although_its_directory_has_modules_of_these_names(
    tmp_path: Path, name: str
):
    (tmp_path / f"{name}.py").write_text(MARK)
    script = tmp_path / "script.py"
    names = "ApprovalRequest, CodeExecutor, generate_mcp_sources"
    script.write_text(f"from ipybox import {names}\nprint(CodeExecutor.__name__)")

    assert run(script, tmp_path) == "CodeExecutor\n"
    assert not (tmp_path / "mark").exists()
