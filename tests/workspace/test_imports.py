"""What a process imports once code can write a part of where it looks.

Tests of what is really imported have a Python of their own; those of the rules look only at what this one would find.
"""

import os
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from ipybox.support.lazy_exports import import_installed
from ipybox.workspace import imports
from ipybox.workspace.imports import guard_imports
from ipybox.workspace.writable import WritablePlaces
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
    planted = {*sys.stdlib_module_names, "aiohttp", "mcp", "pydantic", "yaml", "rich"} - early
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


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory; afterwards, this process imports as before."""
    for name in ("workspace/sub", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "workspace")
    monkeypatch.setattr(sys, "path", sys.path[:])
    # Executors of other tests guard this process for good.
    unguarded = [finder for finder in sys.meta_path if type(finder).__module__ != imports.__name__]
    monkeypatch.setattr(sys, "meta_path", unguarded)
    monkeypatch.setattr(imports, "_guard", type(vars(imports)["_guard"])())
    before = set(sys.modules)
    yield tmp_path / "workspace"
    for name in set(sys.modules) - before:
        if name.startswith("planted"):
            del sys.modules[name]


def loaded(name: str, search: object, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package that was imported before."""
    module = ModuleType(name)
    module.__path__ = search  # pyright: ignore[reportAttributeAccessIssue] there are others than lists
    monkeypatch.setitem(sys.modules, name, module)
    return module


def test_what_code_can_write_is_dropped_and_this_python_is_spelled_without_links(workspace: Path, tmp_path: Path):
    python = Path(sys.prefix).resolve()
    (workspace / ".venv").symlink_to(python)
    (workspace / "out").symlink_to(tmp_path / "elsewhere")
    entries = ["", ".", str(workspace / "sub"), str(workspace / "out"), str(tmp_path / "elsewhere")]
    sys.path[:] = [*entries, str(workspace / ".venv" / "lib"), str(tmp_path / "missing")]

    guard_imports(WritablePlaces(workspace))

    assert sys.path == [str(tmp_path / "elsewhere"), str(python / "lib"), str(tmp_path / "missing")]


@pytest.mark.parametrize("name", ["planted_top", "planted_sub"])
def test_a_module_that_was_dropped_is_refused_with_what_to_do(workspace: Path, name: str):
    place = workspace / "sub" if name == "planted_sub" else workspace
    (place / f"{name}.py").touch()
    sys.path[:0] = ["", str(workspace / "sub")]
    assert find_spec(name) is not None
    guard_imports(WritablePlaces(workspace))

    with pytest.raises(ModuleNotFoundError) as error:
        find_spec(name)

    assert error.value.name == name
    assert str(error.value) == (
        f"ipybox does not import {name!r} from {place}: code in the kernel can write there. Import it before the "
        "sandbox starts, or run code in another directory (working_dir, --workspace)"
    )
    assert find_spec("planted_nowhere") is None
    assert find_spec("json.planted_top") is None
    assert find_spec("json") is not None


def test_imports_are_guarded_once_for_all_workspaces(workspace: Path, tmp_path: Path):
    before = sys.meta_path[:]

    for place in (workspace, workspace, tmp_path / "elsewhere"):
        guard_imports(WritablePlaces(place))

    assert sys.meta_path[1:-1] == before


def test_modules_of_a_package_in_such_a_place_are_refused(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    elsewhere = tmp_path / "elsewhere"
    for place in (workspace, elsewhere):
        (place / "part.py").touch()
    loaded("planted", [str(workspace)], monkeypatch)
    loaded("planted_both", [str(elsewhere), str(workspace)], monkeypatch)
    loaded("planted_later", [str(elsewhere)], monkeypatch)

    guard_imports(WritablePlaces(workspace))

    for name in ("planted.part", "planted_both.part"):
        with pytest.raises(ModuleNotFoundError, match=f"does not import '{name}' from {workspace}: ") as error:
            find_spec(name)
        assert error.value.name == name
    assert find_spec("planted_later.part") is not None
    guard_imports(WritablePlaces(elsewhere))
    with pytest.raises(ModuleNotFoundError, match=f"from {elsewhere}: "):
        find_spec("planted_later.part")
    with pytest.raises(ModuleNotFoundError, match=f"from {workspace}: "):
        find_spec("planted.part")


def test_loaded_packages_are_spelled_without_links_if_these_are_in_the_workspace(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    python = Path(sys.prefix).resolve()
    (workspace / ".venv").symlink_to(python)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    kept = [str(workspace / "sub"), str(tmp_path / "link")]
    module = loaded("planted", [str(workspace / ".venv" / "lib"), *kept], monkeypatch)
    tuples = loaded("planted_tuple", (str(workspace / ".venv"),), monkeypatch)
    search = module.__path__

    guard_imports(WritablePlaces(workspace))

    assert search == module.__path__ == [str(python / "lib"), *kept]
    assert tuples.__path__ == (str(workspace / ".venv"),)


@pytest.mark.parametrize(
    ("first", "safe_path", "script", "imported"),
    [
        ("workspace", False, "elsewhere/script.py", "installed"),
        ("workspace", False, None, "installed"),
        ("", False, None, "installed"),
        ("script", False, "script/script.py", "installed"),
        ("script", False, "link/script.py", "installed"),
        ("other", False, "script/script.py", "first"),
        ("workspace", True, None, "first"),
    ],
    ids=["working_directory", "no_script", "empty", "script", "linked_script", "another", "safe_path"],
)
def test_what_is_installed_comes_before_the_directory_of_the_script(
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    safe_path: bool,
    script: str | None,
    imported: str,
):
    (tmp_path / "script").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to("script")
    place = tmp_path / first if first else workspace
    installed = tmp_path / "installed"
    installed.mkdir()
    for directory, text in ((place, "first"), (installed, "installed")):
        (directory / "planted_one.py").write_text(f"said = {text!r}")
        (directory / f"planted_only_{text}.py").write_text(f"said = {text!r}")
    main = ModuleType("__main__")
    if script is not None:
        main.__file__ = str(tmp_path / script)
    monkeypatch.setitem(sys.modules, "__main__", main)
    flags = {name: getattr(sys.flags, name) for name in dir(sys.flags) if not name.startswith("_")}
    monkeypatch.setattr(sys, "flags", SimpleNamespace(**flags | {"safe_path": safe_path}))
    sys.path[:0] = [str(place) if first else "", str(installed)]
    before = sys.path[:]

    assert import_installed("planted_one").said == imported
    assert import_installed("planted_only_installed").said == "installed"
    assert import_installed("planted_only_first").said == "first"
    with pytest.raises(ModuleNotFoundError, match="planted_missing"):
        import_installed("planted_missing")
    assert sys.path == before


def test_an_error_of_an_installed_module_is_not_hidden(workspace: Path, tmp_path: Path):
    (workspace / "planted_wrong.py").touch()
    (tmp_path / "elsewhere" / "planted_wrong.py").write_text("raise ZeroDivisionError")
    sys.path[:0] = [os.getcwd(), str(tmp_path / "elsewhere")]
    before = sys.path[:]

    with pytest.raises(ZeroDivisionError):
        import_installed("planted_wrong")

    assert sys.path == before


def test_other_threads_import_from_the_directory_of_the_script_meanwhile(workspace: Path, tmp_path: Path):
    """As an application does with its own modules, while a module of ipybox is imported in a thread."""
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "planted_slow.py").write_text(
        "import importlib.util, sys\n"
        "sys.modules['__main__'].importing()\n"
        "hidden = importlib.util.find_spec('planted_own_too') is None\n"
        "try:\n    import planted_own_too\nexcept ModuleNotFoundError:\n    hidden_too = True\n"
    )
    for name in ("planted_own", "planted_own_too"):
        (workspace / f"{name}.py").write_text("")
    sys.path[:0] = [os.getcwd(), str(installed)]
    before = sys.path[:]
    importing, go, imported = threading.Event(), threading.Event(), list[ModuleType]()

    def wait() -> None:
        importing.set()
        assert go.wait(WAIT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["__main__"], "importing", wait, raising=False)
        thread = threading.Thread(target=lambda: imported.append(import_installed("planted_slow")))
        thread.start()
        try:
            assert importing.wait(WAIT)
            assert sys.path == before
            import_module("planted_own")
            sys.path.append(str(tmp_path))  # stays
        finally:
            go.set()
            thread.join(WAIT)
    assert (imported[0].hidden, imported[0].hidden_too) == (True, True)
    assert sys.path == [*before, str(tmp_path)]
    assert "planted_own_too" not in sys.modules
