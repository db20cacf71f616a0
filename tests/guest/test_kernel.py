"""What a real kernel puts out, and how ipybox sets it up."""

import base64
from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutionChunk, CodeExecutionError, CodeExecutionResult, CodeExecutor
from ipybox.guest.protocol import MARK
from tests.conftest import Mode

pytestmark = pytest.mark.asyncio(loop_scope="module")

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def text(executor: CodeExecutor, code: str) -> str | None:
    result = await executor.execute(code, timeout=60)
    assert result.images == []
    return result.text


async def failure(executor: CodeExecutor, code: str) -> CodeExecutionError:
    with pytest.raises(CodeExecutionError) as error:
        await executor.execute(code, timeout=60)
    return error.value


async def test_an_interrupt_just_before_the_code_runs_ends_the_cell_and_nothing_else(executor: CodeExecutor):
    interrupts = """
import os, signal
def interrupt(lines):
    if lines == ["'marked'\\n"]:
        os.kill(os.getpid(), signal.SIGINT)
    return lines
get_ipython().input_transformers_cleanup.append(interrupt)
"""
    await executor.execute(interrupts)
    assert str(await failure(executor, "'marked'")) == "KeyboardInterrupt"
    assert await text(executor, "interrupt.__name__") == "'interrupt'"
    await executor.execute("get_ipython().input_transformers_cleanup.remove(interrupt)")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param("pass", None, id="nothing"),
        pytest.param("print()", "", id="an_empty_line"),
        pytest.param("print(end='')", None, id="an_empty_write"),
        pytest.param("print('a'); print('b')", "a\nb", id="lines"),
        pytest.param("print('a', end='')", "a", id="no_final_newline"),
        pytest.param("print('a\\n\\n')", "a\n\n", id="only_one_final_newline_goes"),
        pytest.param("1 + 1", "2", id="a_value"),
        pytest.param("1 + 1;", None, id="a_value_that_is_not_wanted"),
        pytest.param("display(1); display(2); 3", "1\n2\n3", id="displays_and_a_value"),
        pytest.param("print('a', end=''); display('b'); print('c')", "a\n'b'\nc", id="a_display_has_its_own_line"),
        pytest.param("print('ä€\\U0001f600')", "ä€\U0001f600", id="unicode"),
        pytest.param("print('a\\ud800b')", "a\N{REPLACEMENT CHARACTER}b", id="a_lone_surrogate_in_a_stream"),
        pytest.param(
            "display({'text/plain': 'a\\udfffb'}, raw=True)",
            "a\N{REPLACEMENT CHARACTER}b",
            id="a_lone_surrogate_in_a_display",
        ),
        pytest.param("print('\\x1b[1;31mred\\x1b[0m')", "red", id="colors"),
        pytest.param("print('\\x1b]8;;http://x\\x1b\\\\link\\x1b]8;;\\x07')", "link", id="links"),
        pytest.param("display({'text/plain': '\\x1b[31mred\\x1b[0m'}, raw=True)", "red", id="colours_in_a_display"),
    ],
)
async def test_text_is_what_was_printed_and_displayed(executor: CodeExecutor, code: str, expected: str | None):
    assert await text(executor, code) == expected


async def test_stdout_stderr_and_displays_keep_their_order(executor: CodeExecutor):
    code = """
import sys
for number in range(200):
    print("out", number)
    print("err", number, file=sys.stderr)
    if number % 10 == 0:
        display(number)
"""
    expected = [
        line
        for number in range(200)
        for line in (f"out {number}", f"err {number}", *([str(number)] if number % 10 == 0 else []))
    ]
    assert await text(executor, code) == "\n".join(expected)


async def test_output_of_child_processes_is_in_order_and_belongs_to_its_cell(executor: CodeExecutor):
    code = "import subprocess\nfor i in range(5): print('print', i); subprocess.run(['echo', f'child {i}'], check=True)"
    expected = "\n".join(f"{who} {i}" for i in range(5) for who in ("print", "child"))

    assert [await text(executor, code) for _ in range(5)] == [expected] * 5
    assert await text(executor, "!echo one; echo two") == "one\ntwo"


async def test_output_of_forked_children_is_in_order_and_belongs_to_its_cell(executor: CodeExecutor):
    code = """
import multiprocessing
for i in range(5):
    print("parent", i)
    child = multiprocessing.get_context("fork").Process(target=print, args=("child", i))
    child.start()
    child.join()
"""
    expected = "\n".join(f"{who} {i}" for i in range(5) for who in ("parent", "child"))

    assert [await text(executor, code) for _ in range(3)] == [expected] * 3


async def test_text_of_child_processes_is_decoded_wherever_it_is_split(executor: CodeExecutor):
    code = "import subprocess; subprocess.run(['printf', 'a' + 'ä€' * 20_000], check=True);"

    assert await text(executor, code) == "a" + "ä€" * 20_000


async def test_a_child_that_floods_the_output_does_not_stop_the_kernel(executor: CodeExecutor):
    code = "import subprocess; flood = subprocess.Popen(['yes']); print('go on'); flood.kill(); flood.wait();"
    shown = await text(executor, code)

    # Both write at the same time, so the child's lines may come between text and newline.
    assert shown is not None
    assert "go on" in shown
    assert set(shown) <= set("go on\ny")
    assert await text(executor, "print('quiet')") == "quiet"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param("h = display(1, display_id=True); print('x'); h.update(2)", "2\nx", id="update_in_place"),
        pytest.param("h = display(1, display_id='i'); h2 = h.display(3); h.update(2)", "2\n2", id="update_all_places"),
        pytest.param("print('a'); clear_output(); print('b')", "b", id="clear_at_once"),
        pytest.param("print('a'); clear_output()", None, id="clear_all"),
        pytest.param("print('a'); clear_output(wait=True); print('b')", "b", id="clear_with_the_next_output"),
        pytest.param("print('a'); clear_output(wait=True)", "a", id="clear_that_waits_in_vain"),
        pytest.param("display(1); clear_output(wait=True); display(2); print(3)", "2\n3", id="clear_displays"),
    ],
)
async def test_displays_are_updated_and_cleared_as_in_jupyter(executor: CodeExecutor, code: str, expected: str | None):
    assert await text(executor, f"from IPython.display import clear_output\n{code}") == expected


async def test_an_update_of_a_display_of_an_earlier_cell_shows_where_it_happens(executor: CodeExecutor):
    assert await text(executor, "earlier = display('old', display_id=True)") == "'old'"
    assert await text(executor, "print('a'); earlier.update('new')") == "a\n'new'"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param("Markdown('# x')", "# x", id="Markdown"),
        pytest.param("Latex('$x$')", "$x$", id="LaTeX"),
        pytest.param("JSON({'ä': [1, None]})", '{"ä": [1, null]}', id="JSON"),
        pytest.param("Pretty('pretty')", "pretty", id="text_that_says_more_than_its_class"),
    ],
)
async def test_rich_displays_give_their_text_form(executor: CodeExecutor, code: str, expected: str):
    assert await text(executor, f"from IPython.display import *\n{code}") == expected


async def test_pictures_become_files_and_leave_no_text(executor: CodeExecutor, workspace: Path):
    jpeg = b"\xff\xd8\xff\xe0 not much of a picture"
    code = f"""
from IPython.display import Image
print("before")
display(Image({PNG!r}))
print("between")
display(Image({jpeg!r}, format="jpeg"))
"""
    result = await executor.execute(code)

    assert result.text == "before\nbetween"
    assert [path.suffix for path in result.images] == [".png", ".jpg"]
    assert [path.read_bytes() for path in result.images] == [PNG, jpeg]
    assert {path.parent for path in result.images} == {workspace / "pictures"}


async def test_a_figure_is_saved_as_png_without_being_asked_for(executor: CodeExecutor):
    shown = await executor.execute("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    left = await executor.execute("plt.plot([1, 2]);")

    for result in (shown, left):
        assert result.text is None
        assert [path.read_bytes()[:8] for path in result.images] == [PNG[:8]]


async def test_cleared_pictures_are_not_saved(executor: CodeExecutor):
    code = f"""
from IPython.display import Image, clear_output
display(Image({PNG!r}))
clear_output()
handle = display(Image({PNG!r}), display_id=True)
handle.update("no picture")
"""
    assert await text(executor, code) == "'no picture'"


async def test_control_sequences_that_are_split_over_writes_are_removed_from_chunks(executor: CodeExecutor):
    code = """
import sys
for piece in ("a\\x1b", "[3", "1mred", "\\x1b[0", "mb", "\\x1b]0;ti", "tle\\x07c"):
    sys.stdout.write(piece)
    sys.stdout.flush()
"""
    *chunks, result = [item async for item in executor.stream(code, chunks=True)]

    assert "".join(item.text for item in chunks if isinstance(item, CodeExecutionChunk)) == "aredbc"
    assert result == CodeExecutionResult("aredbc", [])


async def test_the_pager_is_output(executor: CodeExecutor):
    shown = await text(executor, "print('before')\nlen?")

    assert shown is not None
    assert shown.startswith("before\n")
    assert "Return the number of items in a container." in shown


@pytest.mark.parametrize("call", ["input('name? ')", "import getpass; getpass.getpass()"])
async def test_asking_for_input_fails_at_once_and_says_why(executor: CodeExecutor, call: str):
    error = await failure(executor, f"print('before')\n{call}")

    assert "input() is not available because no user can answer it here." in str(error)
    assert error.text is not None
    assert error.text.startswith("before")
    assert await text(executor, "1") == "1"


async def test_an_exception_has_the_traceback_of_the_code_only(executor: CodeExecutor):
    error = await failure(executor, "print('so far')\ndef divide(): return 1 / 0\ndivide()")

    assert str(error).splitlines()[1].startswith("ZeroDivisionError")
    assert "----> 3 divide()" in str(error)
    assert str(error).endswith("ZeroDivisionError: division by zero")
    assert "site-packages" not in str(error)
    assert "\x1b" not in str(error)
    assert error.text == "so far"


async def test_frames_of_libraries_have_one_line_each(executor: CodeExecutor):
    error = str(await failure(executor, "import json\ndef read(text): return json.loads(text)\nread('{')"))

    lines = error.splitlines()
    assert sum(line.startswith("File ") and "json/" in line for line in lines) == 3
    assert "----> 2 def read(text): return json.loads(text)" in lines
    assert lines[-2].endswith(", in JSONDecoder.raw_decode")
    assert lines[-1].startswith("JSONDecodeError: Expecting property name")
    assert "scan_once" not in error


async def test_an_invalid_model_shows_what_is_wrong_with_it_and_little_else(executor: CodeExecutor):
    code = "from pydantic import BaseModel\nclass Params(BaseModel):\n    zone: str\nParams(zone=5)"
    error = str(await failure(executor, code))

    assert "----> 4 Params(zone=5)" in error
    assert error.endswith("zone\n  Input should be a valid string [type=string_type, input_value=5, input_type=int]")
    assert len(error) < 600


async def test_modules_of_the_workspace_are_no_libraries(executor: CodeExecutor, workspace: Path):
    (workspace / "broken.py").write_text("def fail():\n    return 1 / 0\n")
    error = str(await failure(executor, "import broken\nbroken.fail()"))

    assert "----> 2     return 1 / 0" in error


async def test_compiled_code_without_a_source_has_one_line(executor: CodeExecutor):
    error = str(await failure(executor, "import pandas\npandas.Series({'a': 1})['b']"))

    assert "Could not get source" not in error
    assert error.endswith("KeyError: 'b'")
    assert len(error) < 1500


async def test_the_whole_traceback_can_be_asked_for(executor: CodeExecutor):
    await failure(executor, "import json\njson.loads('{')")
    shown = await text(executor, "%tb Verbose")

    assert shown is not None
    assert "obj, end = self.scan_once(s, idx)" in shown
    assert shown.endswith("(char 1)")


async def test_a_traceback_that_is_shown_is_output_and_the_error_of_the_cell_is_not(executor: CodeExecutor):
    shows = "try: {}\nexcept Exception: get_ipython().showtraceback()\n"
    shown = await text(executor, f"print('before')\n{shows.format('1 / 0')}")
    error = await failure(executor, f"{shows.format('1 / 0')}{shows.format('int([])')}[][0]")

    assert shown is not None
    assert shown.startswith("before\n-----")
    assert shown.endswith("ZeroDivisionError: division by zero")
    assert error.text is not None
    assert "ZeroDivisionError" in error.text
    assert "TypeError" in error.text
    assert "IndexError" not in error.text
    assert str(error).endswith("IndexError: list index out of range")


async def test_a_syntax_error_names_its_line(executor: CodeExecutor):
    error = str(await failure(executor, "a = 1\nb = = 2"))

    assert "line 2" in error
    assert "b = = 2" in error
    assert error.rstrip().endswith("SyntaxError: invalid syntax")
    error = str(await failure(executor, "a = 1\nexec('b = = 2')"))
    assert "exec('b = = 2')" in error
    assert 'File "<string>", line 1\n    b = = 2\n        ^\n' in error
    assert error.rstrip().endswith("SyntaxError: invalid syntax")


async def test_an_exception_group_shows_all_its_exceptions(executor: CodeExecutor):
    code = "def fail():\n    raise ExceptionGroup('both', [ValueError('one'), KeyError('two')])\nfail()"
    error = await failure(executor, code)

    for part in ("ExceptionGroup: both (2 sub-exceptions)", "ValueError: one", "KeyError: 'two'", "in fail"):
        assert part in str(error)
    assert "site-packages" not in str(error)
    assert error.text is None


async def test_a_chained_exception_shows_its_cause(executor: CodeExecutor):
    error = str(await failure(executor, "try: 1 / 0\nexcept ZeroDivisionError as e: raise ValueError('bad') from e"))

    assert "ZeroDivisionError: division by zero" in error
    assert "direct cause" in error
    assert error.endswith("ValueError: bad")


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "import sys; sys.exit(3)", "exit()", "quit()"])
async def test_an_exit_ends_the_cell_but_not_the_kernel(executor: CodeExecutor, code: str):
    error = await failure(executor, f"kept = 1\n{code}\nkept = 2")

    assert "SystemExit" in str(error)
    assert await text(executor, "import time; time.sleep(0.2); kept") == "1"


async def test_nothing_is_left_in_the_namespace(workspace: Path, mode: Mode):
    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox) as fresh:
        names = await fresh.execute("print(*sorted(globals()))")

    assert names.text is not None
    assert set(names.text.split()) == {
        *("In", "Out", "_", "__", "___", "_dh", "_ih", "_oh", "exit", "get_ipython", "open", "quit"),
        *("__builtin__", "__builtins__", "__doc__", "__loader__", "__name__", "__package__", "__spec__"),
    }


async def test_modules_of_the_working_directory_can_be_imported(executor: CodeExecutor, workspace: Path):
    assert await text(executor, "import helpers; helpers.double(21)") == "42"
    assert await text(executor, "import os; print(os.getcwd())") == str(workspace)


async def test_modules_of_the_working_directory_do_not_shadow_those_the_kernel_has_started_with(executor: CodeExecutor):
    # The fixture's executor could not have started otherwise.
    assert await text(executor, "import json, random, logging; json.dumps([1])") == "'[1]'"


async def test_the_kernel_has_the_given_environment_and_not_that_of_its_parent(
    workspace: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SECRET_OF_THE_PARENT", "secret")
    monkeypatch.setenv("KERNEL_ENV_NOT_MINE", "the command line's job")
    given = {"GREETING": "hello", "EMPTY": ""}
    async with CodeExecutor(working_dir=workspace, kernel_env=given, sandbox=mode.sandbox) as fresh:
        result = await fresh.execute("import os\nfor name in sorted(os.environ): print(name, os.environ[name])")

    assert result.text is not None
    environment = {name: value for name, _, value in (line.partition(" ") for line in result.text.splitlines())}
    assert environment["GREETING"] == "hello"
    assert environment["EMPTY"] == ""
    assert "secret" not in result.text
    assert not {"KERNEL_ENV_NOT_MINE", "KG_AUTH_TOKEN", "IPYBOX_RUNTIME_DIR"} & environment.keys()


async def test_malformed_messages_of_a_hostile_kernel_do_no_harm(executor: CodeExecutor):
    send = "kernel = get_ipython().kernel\ndef send(type, content, parent=None):\n    kernel.session.send("
    send += "kernel.iopub_socket, type, content, parent=parent or kernel.get_parent())\n"
    contents: tuple[tuple[str, Any], ...] = (
        ("stream", {}),
        ("stream", {"text": [1]}),
        ("display_data", {}),
        ("display_data", {"data": 1}),
        ("display_data", {"data": {"text/plain": {"a": 1}, "image/png": 5}, "transient": 7}),
        ("display_data", {"data": {"image/png": "no base64"}}),
        ("update_display_data", {"data": {"text/plain": "replaces everything?"}}),
        ("update_display_data", {"data": {}, "transient": {"display_id": []}}),
        ("stream", b"[]"),
        ("stream", b"[" * 100_000),
        ("stream", b"no JSON \xff"),
        ("display_data", b""),
        ("status", {"execution_state": {}}),
        ("status", b"[]"),
        (MARK, {"number": "none"}),
        ("nonsense", {}),
    )
    for type_, content in contents:
        await executor.execute(f"{send}print('x')\nsend({type_!r}, {content!r})", timeout=20)
    await executor.execute(f"{send}send('stream', {{'text': 'x'}}, parent={{'msg_id': []}})", timeout=20)
    await executor.execute(f"{send}send('stream', {{'text': 'x'}}, parent={{'msg_id': 'unknown'}})", timeout=20)

    assert await text(executor, "print('fine')") == "fine"
