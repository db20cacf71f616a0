"""Cells end and say what happened, and the next one works, whatever their code has done to the kernel."""

import re
from pathlib import Path

import pytest

from ipybox import CodeExecutionError, CodeExecutor
from tests.conftest import Mode
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Seconds that cells have which would not end otherwise.
SOON = 20
BAD_TEXT = "class Bad:\n    def __repr__(self): raise RuntimeError('no text')\n"
DESCRIPTORS_ARE_LEFT = "import subprocess; subprocess.run(['true']).returncode"


async def text(executor: CodeExecutor, code: str) -> str | None:
    return (await executor.execute(code, timeout=SOON)).text


async def failure(executor: CodeExecutor, code: str) -> str:
    with pytest.raises(CodeExecutionError) as error:
        await executor.execute(code, timeout=SOON)
    return str(error.value)


# Streams


@pytest.mark.parametrize("name", ["stdout", "stderr"])
@pytest.mark.parametrize(
    ("code", "fault"),
    [
        pytest.param("with open('log.txt', 'w') as sys.{}: pass", "closed", id="a_closed_file"),
        pytest.param("sys.{}.close()", "closed", id="the_kernels_own_closed"),
        pytest.param("sys.{} = None", "set to None", id="None"),
        pytest.param(
            "class Writer:\n    def write(self, text): return len(text)\nsys.{} = Writer()",
            "replaced by an object that can't be written to and flushed (AttributeError)",
            id="without_flush",
        ),
        pytest.param(
            "class Silent:\n    def flush(self): pass\nsys.{} = Silent()",
            "replaced by an object that can't be written to and flushed (AttributeError)",
            id="without_write",
        ),
    ],
)
async def test_a_stream_that_code_leaves_unusable_is_reset_and_later_output_is_not_lost(
    executor: CodeExecutor, name: str, code: str, fault: str
):
    reset = f"sys.{name} was reset because the code left it {fault}"

    assert await text(executor, "import sys\n" + code.format(name)) == reset
    assert await text(executor, f"print('next', file=sys.{name}); 1 + 1") == "next\n2"


async def test_a_stream_that_code_leaves_unusable_keeps_neither_value_nor_display_nor_error(executor: CodeExecutor):
    closed = "import sys\nwith open('log.txt', 'w') as sys.stdout: print('x')\n"

    assert await text(executor, f"{closed}1 + 1") == "sys.stdout was reset because the code left it closed\n2"
    assert await text(executor, f"{closed}display(3)") == "sys.stdout was reset because the code left it closed\n3"
    assert "ZeroDivisionError: division by zero" in await failure(executor, f"{closed}1 / 0")


async def test_a_stream_of_the_code_stays(executor: CodeExecutor):
    kept = "import io, sys\nkept = sys.stdout, sys.__stdout__\n"
    assert await text(executor, f"{kept}sys.stdout = mine = io.StringIO()\nprint('a')") is None
    assert await text(executor, "print('b')") is None
    assert await text(executor, "sys.stdout = sys.__stdout__ = sys.stderr; mine.getvalue()") == "'a\\nb\\n'"
    assert await text(executor, "print('c'); sys.stdout, sys.__stdout__ = kept") == "c"


async def test_a_closed_stream_keeps_no_output_of_others_back(executor: CodeExecutor):
    code = "import os, sys\nsys.stderr.close()\nsys.stderr.flush()\nos.system('echo child')\nprint('out')\n"
    error = await failure(executor, f"{code}sys.stderr.write('lost')")

    assert error.rstrip().endswith("ValueError: I/O operation on closed file")
    assert await text(executor, f"{code}None") == "child\nout\nsys.stderr was reset because the code left it closed"


async def test_a_publisher_of_the_code_keeps_no_cell_from_its_end(executor: CodeExecutor):
    code = """
from IPython.core.displaypub import CapturingDisplayPublisher
class Publisher(CapturingDisplayPublisher):
    def set_parent(self, parent): pass
shell = get_ipython()
kept, shell.display_pub = shell.display_pub, Publisher()
"""
    assert await text(executor, code) is None
    assert await text(executor, "display('captured'); print('printed')") == "printed"
    assert await text(executor, "shell.display_pub = kept; display('shown')") == "'shown'"


async def test_the_kernel_holds_no_copy_of_the_output(executor: CodeExecutor):
    await executor.execute("print('a'); display('b'); 'c'")

    assert await text(executor, "print(dict(get_ipython().history_manager.outputs))") == "{}"


# Errors


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param(
            "class Silent(Exception):\n    def __str__(self): raise RuntimeError\nraise Silent",
            "Silent: <exception str() failed>",
            id="text_that_fails",
        ),
        pytest.param(
            "class Numeric(Exception):\n    def __str__(self): return 1\nraise Numeric",
            "Numeric: <exception str() failed>",
            id="text_that_is_none",
        ),
        pytest.param(
            "class Exiting(Exception):\n    def __str__(self): raise SystemExit(3)\nraise Exiting",
            "Exiting: <exception str() failed>",
            id="text_that_exits",
        ),
        pytest.param(f"{BAD_TEXT}raise KeyError(Bad())", "KeyError: <exception str() failed>", id="a_bad_key"),
        pytest.param(f"{BAD_TEXT}raise SystemExit(Bad())", "SystemExit: <exception str() failed>", id="a_bad_status"),
        pytest.param(
            "class Endless:\n    def __repr__(self): return repr(self)\nraise KeyError(Endless())",
            "KeyError: <exception str() failed>",
            id="endless_text",
        ),
        pytest.param(
            f"{BAD_TEXT}raise ExceptionGroup('both', [KeyError(Bad()), ValueError('other')])",
            "KeyError: <exception str() failed>",
            id="a_bad_member_of_a_group",
        ),
        pytest.param(
            "try: raise ExceptionGroup('both', [ValueError('one')])\nexcept* ValueError: raise KeyError('two')",
            "KeyError: 'two'",
            id="an_error_that_comes_from_a_group",
        ),
        pytest.param("e = ValueError('noted'); e.__notes__ = [5]; raise e", "ValueError: noted", id="a_bad_note"),
        pytest.param(
            "class Rendered(Exception):\n    def _render_traceback_(self): return 5\nraise Rendered('plainly')",
            "Rendered: plainly",
            id="a_bad_rendering",
        ),
        pytest.param(
            "a = ValueError('a'); b = ValueError('b'); a.__context__, b.__context__ = b, a; raise a",
            "ValueError: a",
            id="a_circle_of_contexts",
        ),
        pytest.param("raise type('C', (Exception,), {'__init__': lambda s: 1 / 0})", "ZeroDivisionError", id="no_init"),
    ],
)
@pytest.mark.parametrize("awaits", [False, True], ids=["sync", "async"])
async def test_an_exception_says_what_it_was_though_its_text_or_traceback_fails(
    executor: CodeExecutor, code: str, expected: str, awaits: bool
):
    if awaits:
        code = f"import asyncio; await asyncio.sleep(0)\n{code}"
    error = await failure(executor, code)

    assert expected in error
    assert "raise" in error  # the line of the code
    assert await text(executor, "print('next')") == "next"


async def test_a_display_that_fails_is_no_error_of_the_next_cell(executor: CodeExecutor):
    with pytest.raises(CodeExecutionError) as error:
        await executor.execute("class Shown:\n    def _repr_html_(self): return 1 / 0\nShown()", timeout=SOON)

    assert (error.value.name, error.value.value) == ("ZeroDivisionError", "division by zero")
    assert await text(executor, "import asyncio; await asyncio.sleep(0); print('next')") == "next"


async def test_a_traceback_handler_that_fails_leaves_the_error(executor: CodeExecutor):
    await executor.execute("def handler(*args, **kwargs): raise SystemExit\nshell = get_ipython()")
    await executor.execute("shell.set_custom_exc((ValueError,), handler)")

    assert "ValueError: custom" in await failure(executor, "raise ValueError('custom')")
    assert await text(executor, "print('next')") == "next"


async def test_a_traceback_numbers_its_cells(executor: CodeExecutor):
    await executor.execute("def fails():\n    1 / 0")
    frames = re.findall(r"Cell In\[(\d+)\], line (\d)", await failure(executor, "0\n0\nfails()"))

    (calls, calls_line), (defined, defined_line) = frames
    assert (calls_line, defined_line) == ("3", "2")
    assert int(calls) == int(defined) + 1


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("list(undefined for i in range(5))", id="generator_expression"),
        pytest.param("[undefined for i in range(5)]", id="list"),
        pytest.param("{undefined for i in range(5)}", id="set"),
        pytest.param("{i: undefined for i in range(5)}", id="dict"),
        pytest.param("[[undefined for i in range(5)] for j in range(5)]", id="nested"),
        pytest.param("(lambda: undefined)()", id="lambda"),
    ],
)
async def test_a_traceback_shows_the_line_of_a_comprehension(executor: CodeExecutor, code: str):
    error = await failure(executor, f"x = 1\ny = 2\n{code}\nz = 3")
    marked = [line for line in error.splitlines() if line.startswith("---->")]

    assert marked
    assert set(marked) == {f"----> 3 {code}"}


async def test_a_traceback_shows_the_line_that_failed_not_the_last_one_that_ran(executor: CodeExecutor):
    error = await failure(executor, "try:\n    1 / 0\nfinally:\n    x = 1")

    assert "----> 2     1 / 0" in error


# Callbacks


@pytest.mark.parametrize("event", ["pre_execute", "pre_run_cell", "post_execute", "post_run_cell"])
@pytest.mark.parametrize("error", ["SystemExit", "GeneratorExit", "asyncio.CancelledError", "ValueError"])
@pytest.mark.parametrize("cell", ["print('ran')", "await asyncio.sleep(0); print('ran')"], ids=["sync", "async"])
async def test_a_callback_that_fails_is_told_and_the_cell_ends(
    executor: CodeExecutor, event: str, error: str, cell: str
):
    await executor.execute(
        "import asyncio\nfailing = False\n"
        f"def callback(*args):\n    if failing: raise {error}('of the callback')\n"
        f"get_ipython().events.register('{event}', callback)\nfailing = True"
    )
    shown = await text(executor, cell)
    await executor.execute(f"failing = False; get_ipython().events.unregister('{event}', callback)", timeout=SOON)

    assert shown is not None
    assert "ran" in shown.splitlines()
    assert f"Error in a callback for {event}:" in shown.splitlines()
    assert f"{error.removeprefix('asyncio.')}: of the callback" in shown
    assert await text(executor, "print('next')") == "next"


# What code does to the rest of the kernel


@pytest.mark.parametrize(
    ("breaks", "mends"),
    [
        pytest.param("json.dumps = json.loads = None", "json.dumps, json.loads = whole", id="json"),
        pytest.param("time.time = None", "time.time = whole", id="time"),
        pytest.param("del builtins.print", "builtins.print = whole", id="print"),
    ],
)
async def test_cells_run_with_a_patched_standard_library(executor: CodeExecutor, breaks: str, mends: str):
    whole = {"json": "json.dumps, json.loads", "time": "time.time", "print": "print"}
    which = next(name for name in whole if name in breaks)
    await executor.execute(f"import builtins, json, sys, time\nwhole = {whole[which]}\n{breaks}", timeout=SOON)

    assert await text(executor, "sys.stdout.write('next');") == "next"
    assert "ZeroDivisionError" in await failure(executor, "1 / 0")
    assert await text(executor, "import asyncio; await asyncio.sleep(0.01); 1") == "1"
    await executor.execute(mends, timeout=SOON)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            "for task in asyncio.all_tasks(): task.cancel()\nawait asyncio.sleep(0)", id="all_tasks_cancelled"
        ),
        pytest.param("async def end(): raise SystemExit\nawait asyncio.create_task(end())", id="exit_in_a_task"),
    ],
)
async def test_tasks_end_the_cell_and_not_the_kernel(executor: CodeExecutor, code: str):
    await executor.execute("import asyncio; kept = 1")
    await failure(executor, code)

    assert await text(executor, "kept") == "1"


async def test_a_task_that_exits_or_a_stopped_loop_does_not_end_the_kernel(executor: CodeExecutor):
    code = "import asyncio\nasync def end(): raise SystemExit\ntask = asyncio.create_task(end())\n"
    code += "while not task.done(): await asyncio.sleep(0)\ntask.exception()"

    assert await text(executor, code) == "SystemExit()"
    assert await text(executor, "asyncio.get_running_loop().stop(); await asyncio.sleep(0); print('on')") == "on"
    assert await text(executor, "task.done()") == "True"


async def test_libraries_know_the_shell_as_that_of_a_jupyter_kernel(executor: CodeExecutor):
    assert await text(executor, "type(get_ipython()).__name__") == "'ZMQInteractiveShell'"


# Descriptors and memory


async def test_code_that_uses_all_descriptors_up_fails_with_that_and_can_close_them(tmp_path: Path, mode: Mode):
    uses_up = "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))\nkept = 1\n"
    uses_up += "opened = []\nwhile True: opened.append(os.open('/dev/null', os.O_RDONLY))"
    # It is the first error of this kernel: IPython loads what it formats errors with only then.
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as fresh:
        with pytest.raises(CodeExecutionError) as error:
            await fresh.execute(uses_up, timeout=SOON)
        assert str(error.value).endswith("OSError: [Errno 24] Too many open files: '/dev/null'")
        assert "while True: opened.append(os.open" in str(error.value)
        assert error.value.text is None
        assert await text(fresh, "print('next'); 1 + 1") == "next\n2"
        assert "ZeroDivisionError" in await failure(fresh, "1 / 0")
        assert "OSError: [Errno 24] Too many open files" in await failure(fresh, DESCRIPTORS_ARE_LEFT)
        await fresh.execute("for fd in opened: os.close(fd)", timeout=WAIT)
        assert await text(fresh, DESCRIPTORS_ARE_LEFT) == "0"
        assert await text(fresh, "kept") == "1"


async def test_no_connection_to_a_kernel_is_made_beside_its_start_as_it_may_come_when_no_descriptor_is_left(
    tmp_path: Path,
):
    async with CodeExecutor(working_dir=tmp_path) as fresh:
        connections = """
import ipykernel, json
with open(ipykernel.get_connection_file()) as file:
    control = "{ip}-{control_port}".format_map(json.load(file))
with open("/proc/net/unix") as file:
    print(sorted(line.split()[5] for line in file if line.rstrip().endswith(control)))
"""
        assert await text(fresh, connections) == str(["01", "03"]), "the listening socket and the client's connection"


async def test_what_a_function_has_opened_that_failed_for_want_of_descriptors_is_closed(tmp_path: Path, mode: Mode):
    uses_up = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))\n"
    uses_up += "def use_up():\n    opened = []\n    while True: opened.append(open('/dev/null'))\nuse_up()"
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as fresh:
        assert "ZeroDivisionError" in await failure(fresh, "1 / 0")
        assert "OSError: [Errno 24] Too many open files: '/dev/null'" in await failure(fresh, uses_up)
        assert await text(fresh, DESCRIPTORS_ARE_LEFT) == "0"


async def test_what_a_function_held_that_failed_for_want_of_memory_is_free(tmp_path: Path, mode: Mode):
    uses_up = "import resource\nresource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))\n"
    uses_up += "def use_up():\n    held = []\n    while True: held.append(bytearray(1 << 16))\nuse_up()"
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as fresh:
        assert "MemoryError" in await failure(fresh, uses_up)
        assert await text(fresh, "len(bytearray(256 << 20))") == str(256 << 20)


# Long tracebacks

DEEP = "import sys\nkeep = 1\nlimit = sys.getrecursionlimit()\nsys.setrecursionlimit(10**6)\n"
CHAIN = """
def chain(n):
    try:
        if n: chain(n - 1)
        raise ValueError("bottom")
    except ValueError as error:
        {raised}
chain(3000)
"""


@pytest.mark.parametrize(
    ("code", "error"),
    [
        pytest.param(
            "sys.setrecursionlimit(10**5)\ndef deep(n): return deep(n + 1)\ndeep(0)", "RecursionError", id="function"
        ),
        pytest.param(
            "def deep(n):\n    if n == 0: raise KeyError('bottom')\n    return other(n)\n"
            "def other(n): return deep(n - 1)\ndeep(10**5)",
            "KeyError: 'bottom'",
            id="two_functions",
        ),
        pytest.param(CHAIN.format(raised="raise ValueError(n) from error"), "ValueError: 3000", id="causes"),
        pytest.param(CHAIN.format(raised="raise ValueError(n)"), "ValueError: 3000", id="contexts"),
    ],
)
async def test_an_error_with_a_long_traceback_is_shown_and_the_state_is_kept(
    executor: CodeExecutor, code: str, error: str
):
    shown = await failure(executor, f"{DEEP}{code}")

    assert error in shown.splitlines()[-1]
    assert len(shown) < 50_000
    assert await text(executor, "sys.setrecursionlimit(limit); keep") == "1"


@pytest.mark.parametrize("raised", ["ValueError('x' * 10_000_000)", "ValueError(('x' * 19 + '\\n') * 500_000)"])
async def test_the_text_of_an_error_that_is_too_long_for_a_message_is_shown_without_its_middle(
    executor: CodeExecutor, raised: str
):
    with pytest.raises(CodeExecutionError) as error:
        await executor.execute(f"keep = 1; raise {raised}", timeout=SOON)

    assert error.value.value is not None
    for shown in (str(error.value), error.value.value):
        assert re.search(r"\n\[9,475,\d+ characters not shown\]\n", shown)
    assert 1 << 19 < len(error.value.value) < len(str(error.value)) < (1 << 19) + 5000
    assert await text(executor, "keep") == "1"


@pytest.mark.parametrize(
    ("magic", "error"),
    [
        ("%nosuchmagic", "UsageError: Line magic function `%nosuchmagic` not found."),
        ("%%nosuchmagic\n1", "UsageError: Cell magic `%%nosuchmagic` not found."),
        ("%timeit -z 1", 'UsageError: option -z not recognized (allowed: "n:r:tcp:qov:")'),
    ],
)
async def test_a_usage_error_of_a_magic_is_in_the_error_only(executor: CodeExecutor, magic: str, error: str):
    with pytest.raises(CodeExecutionError) as raised:
        await executor.execute(magic, timeout=SOON)

    assert str(raised.value) == error
    assert raised.value.text is None


# GUI toolkits


@pytest.mark.parametrize("gui", ["tk", "wx", "gtk3"])
async def test_a_gui_fails_with_its_cell(executor: CodeExecutor, gui: str):
    assert (
        await failure(executor, f"%gui {gui}") == f"UsageError: can't use the {gui} event loop: a kernel has no display"
    )
    assert await text(executor, "import asyncio; await asyncio.sleep(0.1); print('next')") == "next"


# What code has set up


async def test_an_error_may_render_itself(executor: CodeExecutor):
    code = "class Own(Exception):\n    def _render_traceback_(self): return ['this is', 'all of it']\nraise Own"

    assert await failure(executor, code) == "this is\nall of it"


async def test_showing_an_error_where_there_is_none_says_so(executor: CodeExecutor):
    forget = "import sys\nfor name in ('type', 'value', 'traceback', 'exc'): vars(sys).pop(f'last_{name}', None)\n"

    assert await text(executor, f"{forget}get_ipython().showtraceback()") == "No traceback available to show."


async def test_an_event_loop_of_no_toolkit_is_an_error(executor: CodeExecutor):
    assert "Invalid GUI request 'none-such'" in await failure(executor, "%gui none-such")


async def test_a_transformer_may_refuse_a_cell(executor: CodeExecutor):
    await executor.execute("""
import ast
from IPython.core.error import InputRejected
class Refusing(ast.NodeTransformer):
    def visit_Constant(self, node):
        if node.value == "refused":
            raise InputRejected("not this")
        return node
refusing = Refusing()
get_ipython().ast_transformers.append(refusing)
""")
    assert "not this" in await failure(executor, "'refused'")
    assert await text(executor, "'accepted'") == "'accepted'"
    await executor.execute("get_ipython().ast_transformers.remove(refusing)")


async def test_what_is_no_json_is_displayed_all_the_same(executor: CodeExecutor):
    code = "from datetime import date\ndisplay({'text/plain': 'shown'}, metadata={'at': date(2026, 1, 1)}, raw=True)"

    assert await text(executor, code) == "shown"
    data = "display({'application/json': {'ratio': [float('nan'), 1]}}, raw=True)"
    assert await text(executor, data) == '{"ratio": ["nan", 1]}'
