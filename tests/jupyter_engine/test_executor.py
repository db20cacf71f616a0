"""Cells and tool calls in a kernel of a Jupyter server, over the executor."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pyarrow  # pyright: ignore[reportMissingTypeStubs] - it has none
import pytest

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutionResult, CodeExecutor
from ipybox.errors import VariableError
from tests import servers
from tests.jupyter_engine.foreign import JupyterServer
from tests.servers import WAIT

# Without the fixture `mode`: a sandbox is an error here, see `test_address.py`.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.kernel]


async def test_output_arrives_in_order_and_an_image_is_saved(executor: CodeExecutor, here: Path) -> None:
    result = await executor.execute(
        "import os; print(os.environ['GREETING'], os.getcwd())\n"
        "from IPython.display import Image, display\n"
        "display(Image(data=bytes.fromhex("
        "'89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6300010000050001"
        "0d0a2db40000000049454e44ae426082'), format='png')); 6 * 7"
    )

    assert result.text is not None
    greeting, cwd = result.text.splitlines()[0].split()
    assert (greeting, result.text.splitlines()[-1]) == ("hello", "42")
    assert Path(cwd) != here  # it is the server's
    assert [image.parent for image in result.images] == [here / "images"]


async def test_an_error_has_its_traceback(executor: CodeExecutor) -> None:
    with pytest.raises(CodeExecutionError, match="ZeroDivisionError") as caught:
        await executor.execute("print('before'); 1 / 0")

    assert (caught.value.name, caught.value.text) == ("ZeroDivisionError", "before")


async def test_a_cell_that_takes_too_long_is_interrupted_and_keeps_its_state(executor: CodeExecutor) -> None:
    await executor.execute("kept = 5")
    with pytest.raises(TimeoutError, match="keeps its state"):
        await executor.execute("import time\nwhile True: time.sleep(0.1)", timeout=1)

    assert (await executor.execute("print(kept)")).text == "5"


async def test_forty_megabytes_arrive_whole(executor: CodeExecutor) -> None:
    result = await executor.execute("for _ in range(40): print('x' * 999_999)")

    assert len(result.text or "") == 40_000_000 - 1


async def test_generated_packages_run_on_what_was_sent(executor: CodeExecutor) -> None:
    result = await executor.execute(
        "import ipybox, mcptools.app as app; print(ipybox.__file__, app.__file__, sep='\\n')"
    )

    runtime, package = (result.text or "").splitlines()
    directory = runtime.removesuffix("/ipybox/__init__.py")
    assert "ipybox-" in Path(directory).name
    assert package == f"{directory}/mcptools/app/__init__.py"


async def test_a_call_is_approved_after_the_output_before_it(executor: CodeExecutor) -> None:
    seen: list[str] = []
    async for item in executor.stream("print('first'); print(call('second'))", chunks=True):
        match item:
            case ApprovalRequest():
                seen.append(f"{item.server_name}.{item.tool_name} {item.tool_args}")
                await item.accept()
            case CodeExecutionResult():
                seen.append("end")
            case _ if text := str(item.text).strip():
                seen.append(text)
            case _:
                pass  # the end of a line, which may come by itself

    assert seen == ["first", "app.echo {'text': 'second'}", "second", "end"]


async def test_a_rejection_and_an_expiry_fail_in_the_code(executor: CodeExecutor) -> None:
    async def reject(request: ApprovalRequest) -> None:
        await request.reject("not today")

    async def forget(request: ApprovalRequest) -> None:
        pass

    with pytest.raises(CodeExecutionError, match="rejected: not today"):
        await executor.execute("call('a')", approver=reject)
    with pytest.raises(CodeExecutionError, match="not approved"):
        await executor.execute("call('b')", approver=forget)


async def test_calls_at_the_same_time_and_from_async_code(executor: CodeExecutor) -> None:
    result = await executor.execute(
        "import asyncio\n"
        "async def one(n): return (await echo.run.aio(echo.Params(text=str(n))))\n"
        "print(*await asyncio.gather(*map(one, range(20))))"
    )

    assert result.text == " ".join(map(str, range(20)))


async def test_large_arguments_and_results(executor: CodeExecutor) -> None:
    result = await executor.execute(
        "text = 'é😀' * 200_000\n"
        "print(call(text) == text)\n"
        "print(len(repeat.run(repeat.Params(text='0123456789', times=1_000_000))))"
    )

    assert result.text == "True\n10000000"


async def test_a_cell_that_is_cancelled_withdraws_its_call(executor: CodeExecutor) -> None:
    ended = asyncio.Event()

    async def wait(request: ApprovalRequest) -> None:
        executor.cancel()
        try:
            await asyncio.sleep(WAIT)
        finally:
            ended.set()

    with pytest.raises(CodeExecutionError, match="cancelled"):
        await executor.execute("call('never')", approver=wait)
    async with asyncio.timeout(WAIT):
        await ended.wait()

    assert (await executor.execute("print(call('again'))")).text == "again"


async def test_a_call_of_a_child_process_fails_and_does_not_hang(executor: CodeExecutor) -> None:
    result = await executor.execute(
        "import os\n"
        "reader, writer = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    try: call('x')\n"
        "    except BaseException as error: os.write(writer, repr(error).encode())\n"
        "    os._exit(0)\n"
        "os.wait(); print(os.read(reader, 10_000).decode())"
    )

    assert "a process that code starts can't call tools" in (result.text or "")


async def test_a_server_that_was_not_registered_is_refused_and_one_that_is_runs(
    executor: CodeExecutor, here: Path
) -> None:
    servers.register(here / "mcptools", scripted=servers.scripted())  # a module of `mcptools/`, which is sent
    sealed = servers.registered("scripted", servers.scripted(), here / "mcptools")
    code = """
from ipybox.tool_exec.client import ToolRunner
def run(params, seal=None): return ToolRunner("scripted", params, seal=seal).run_sync("echo", {"text": "hi"})
"""
    result = await executor.execute(f"{code}\nprint(run({servers.scripted()!r}, {sealed!r}))")
    assert "hi" in (result.text or "")

    with pytest.raises(CodeExecutionError, match="is not registered in this workspace"):
        await executor.execute(f"{code}\nrun({{'command': 'touch', 'args': ['/tmp/never']}})")


async def test_messages_that_code_forges_are_calls_like_any_other_and_run_once(executor: CodeExecutor) -> None:
    seen: list[str] = []
    forged = asyncio.Event()

    async def decide(request: ApprovalRequest) -> None:
        text = str(request.tool_args["text"])
        seen.append(text)
        if text == "forged":
            forged.set()
        else:
            await forged.wait()
        await request.accept()

    result = await executor.execute(
        """
import json
from ipybox_comm import bridge
from mcptools.app import CLIENT
def forge(call_id, body, **data): bridge.send({"op": "call", "id": call_id, "n": 0, "of": 1, **data}, buffers=[body])
body = json.dumps({"server_name": "app", "server_params": CLIENT.server_params, "seal": CLIENT._seal,
                   "tool_name": "echo", "tool_args": {"text": "forged"}}).encode()
for _ in range(3): forge("ab" * 16, body)
forge("ab", body)
forge("cd" * 16, body, n=-1)
forge("ef" * 16, body, of=10**9)
forge("01" * 16, b"x" * (2 << 20))
forge("23" * 16, body.replace(b'"app"', b'"other"'))
bridge.send({"op": "got", "id": "ab" * 16})
content = {"comm_id": "another", "data": {"op": "call", "id": "45" * 16, "n": 0, "of": 1}}
bridge.kernel.session.send(bridge.kernel.iopub_socket, "comm_msg", content, buffers=[body])
print(call("real"))
""",
        approver=decide,
    )

    assert (result.text, seen) == ("real", ["forged", "real"])


async def test_packages_that_change_are_sent_before_the_next_cell(executor: CodeExecutor, here: Path) -> None:
    package = here / "mcptools" / "added"
    package.mkdir()
    (package / "__init__.py").write_text("VALUE = 1\n")
    assert (await executor.execute("from mcptools import added; print(added.VALUE)")).text == "1"

    (package / "more.py").write_text("MORE = 2\n")
    assert (await executor.execute("from mcptools.added import more; print(more.MORE)")).text == "2"


async def test_variables_and_environment_are_exchanged_with_the_kernel(executor: CodeExecutor) -> None:
    value = {"text": "é\ud800", "numbers": [1, 2.5, None, True], "large": "x" * 1_000_000}
    code = "import os; print(given['numbers'], len(given['large']), os.environ['ONCE'])"
    result = await executor.execute(code, variables={"given": value}, env={"ONCE": "here"})
    assert result.text == "[1, 2.5, None, True] 1000000 here"
    assert await executor.get("given") == value

    assert (await executor.execute("print(os.environ.get('ONCE'))")).text == "None"
    await executor.execute("many = list(range(3_000_000))")  # more than a server accepts from a client
    assert len(await executor.get("many")) == 3_000_000


async def test_tables_are_exchanged_with_the_kernel(executor: CodeExecutor) -> None:
    arrow: Any = pyarrow
    table = arrow.table({"a": [1, 2], "b": ["x", None]})
    code = "total = a_table.column('a').to_pylist(); import pyarrow; again = a_table.append_column('c', [[3, 4]])"
    await executor.execute(code, variables={"a_table": table})

    assert await executor.get("total") == [1, 2]
    assert (await executor.get("again")).to_pydict() == {"a": [1, 2], "b": ["x", None], "c": [3, 4]}


async def test_variables_that_can_not_be_exchanged_are_errors_and_no_code_runs(executor: CodeExecutor) -> None:
    with pytest.raises(VariableError, match="8 MiB is all that can be sent"):
        await executor.execute("ran = 1", variables={"x": "x" * (9 << 20)})
    with pytest.raises(VariableError, match="there is no variable ran in the kernel"):
        await executor.get("ran")
    await executor.execute("unsendable = object()")
    with pytest.raises(VariableError, match="unsendable"):
        await executor.get("unsendable")

    await executor.execute("import ipybox.guest.variables as v; kept_set = v.set_variables; del v.set_variables")
    with pytest.raises(VariableError, match="ImportError"):
        await executor.execute("ran = 1", variables={"x": 1})
    await executor.execute("v.set_variables = kept_set")
    assert (await executor.execute("print(x, 'ran' in globals())", variables={"x": 2})).text == "2 False"


async def test_files_and_people_are_refused_with_a_reason(executor: CodeExecutor, here: Path) -> None:
    with pytest.raises(ValueError, match="files are not copied"):
        await executor.upload_file(here, "x")
    with pytest.raises(RuntimeError, match="people join"):
        async with executor.attach():
            pass


async def test_a_reset_and_a_death_each_bring_a_new_kernel(executor: CodeExecutor, gateway: JupyterServer) -> None:
    first = executor.kernel_id
    await executor.reset()
    assert executor.kernel_id != first
    with pytest.raises(CodeExecutionError, match="NameError"):
        await executor.execute("kept")

    with pytest.raises(CodeExecutionError, match="the kernel died"):
        await executor.execute("import os; os._exit(1)")
    result = await executor.execute("print('new')")
    assert (result.text, result.kernel_restarted) == ("new", True)


async def test_the_token_is_in_no_text_of_the_executor(gateway: JupyterServer, here: Path) -> None:
    executor = CodeExecutor(gateway_url=gateway.url, gateway_token=gateway.token, working_dir=here)
    config = executor._config  # pyright: ignore[reportPrivateUsage] - what a debugger shows

    assert not re.search(gateway.token, repr(config) + repr(config.server) + repr(vars(executor)))
