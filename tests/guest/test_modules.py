"""The guest's modules without a kernel around them; what they do in one is in `test_kernel`."""

import asyncio
import json
import os
import select
import socket
import subprocess
import sys
import threading
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, cast

import pytest
from IPython.core.error import StdinNotImplementedError

from ipybox.guest.gateway import offer_tool_port
from ipybox.guest.gateway_app import gateway_config, unix_sockets_work
from ipybox.guest.kernel import GuestKernelApp, kernel_config, pack_json, refuse_input
from ipybox.guest.kernel_manager import GuestKernelManager
from ipybox.guest.packages import keep_bytecode_out_of_git
from ipybox.guest.protocol import LISTENER, MAX_FDS
from ipybox.guest.streams import write_to_descriptor
from ipybox.guest.tools.http import ConnectionPool, ServerAddress
from ipybox.guest.tracebacks import cut_at_ipybox
from tests import servers


def test_text_is_written_whole_to_a_descriptor():
    receive, send = os.pipe()
    text = "ä\ud800" * 100_000
    received: list[bytes] = []
    with open(receive, "rb") as reading:
        thread = threading.Thread(target=lambda: received.append(reading.read()))
        thread.start()
        assert write_to_descriptor(send, text) == len(text)
        os.close(send)
        thread.join()

    assert received == [("ä?" * 100_000).encode()]


def test_asking_for_input_is_refused_whatever_the_arguments():
    with pytest.raises(StdinNotImplementedError, match=r"input\(\) is not available"):
        refuse_input("prompt", None, None, password=True)


def traceback_of(call: str, **names: object) -> list[str]:
    """Returns the files of the frames that are left of the traceback of a call in user code."""
    try:
        exec(compile(call, "user code", "exec"), names)
    except Exception as exc:
        traceback: TracebackType | None = exc.__traceback__
        assert traceback is not None
        cut_at_ipybox(traceback)
        files: list[str] = []
        while traceback is not None:
            files.append(Path(traceback.tb_frame.f_code.co_filename).name)
            traceback = traceback.tb_next
        return files
    raise AssertionError("it did not fail")


def test_a_traceback_is_cut_where_it_enters_ipybox():
    with socket.create_server(("127.0.0.1", 0)) as freed:
        address = ServerAddress("127.0.0.1", freed.getsockname()[1], None)

    files = traceback_of("pool.request('GET', '/', b'')", pool=ConnectionPool(address))

    assert files == ["test_modules.py", "user code"]


def test_a_traceback_of_user_code_is_whole():
    files = traceback_of("parse('no JSON')", parse=json.loads)

    assert files == ["test_modules.py", "user code", "__init__.py", "decoder.py", "decoder.py"]


def test_messages_with_lone_surrogates_are_packed_as_json():
    assert json.loads(pack_json({"text": "a\ud800ä"})) == {"text": "a\ud800ä"}
    assert json.loads(pack_json({"text": "ä"})) == {"text": "ä"}


def test_unix_sockets_work_where_they_do(tmp_path: Path):
    assert unix_sockets_work(str(tmp_path))
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    assert not unix_sockets_work(str(deep))


def test_kernels_talk_over_files_where_they_can(tmp_path: Path):
    assert gateway_config(str(tmp_path), "WARNING").KernelManager.transport == "ipc"
    (tmp_path / ("x" * 100)).mkdir()
    assert gateway_config(str(tmp_path / ("x" * 100)), "WARNING").KernelManager.transport == "tcp"


def test_the_kernel_keeps_no_history_and_no_colours():
    config = kernel_config()

    assert config.HistoryManager.enabled is False
    assert config.InteractiveShell.colors == "nocolor"


def test_the_host_gets_the_listening_socket_of_the_tool_port():
    host, guest = socket.socketpair()
    with host, guest:
        port = offer_tool_port(guest)
        data, fds, _, _ = socket.recv_fds(host, 16, MAX_FDS)
        assert (data, len(fds)) == (LISTENER, 1)
        with socket.socket(fileno=fds[0]) as listener, socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = listener.accept()
            with accepted:
                client.sendall(b"x")
                assert accepted.recv(1) == b"x"


def test_a_process_dies_with_its_parent():
    child = (
        "import os, sys, time; from ipybox.guest.process import die_with_parent;"
        " die_with_parent(os.getppid()); print(os.getpid(), flush=True); time.sleep(60)"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        waiting = os.pidfd_open(pid)
        process.kill()
        poll = select.poll()
        poll.register(waiting, select.POLLIN)
        assert poll.poll(servers.WAIT * 1000)
        os.close(waiting)
    assert not servers.is_alive(pid)


def test_a_process_whose_parent_has_gone_ends_at_once():
    code = "from ipybox.guest.process import die_with_parent; die_with_parent(1); print('still there')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=servers.WAIT, check=False)

    assert (done.returncode, done.stdout) == (1, b"")


def test_a_kernel_without_a_key_does_not_start():
    with pytest.raises(ValueError, match="the gateway sent no key"):
        GuestKernelApp.init_connection_file(cast(Any, SimpleNamespace(connection={"key": ""})))


async def test_a_client_that_comes_after_the_kernels_death_is_told_of_it():
    told: list[str] = []
    manager = cast(Any, SimpleNamespace(_dead_callbacks=[], exit={"status": 1}))
    GuestKernelManager.add_restart_callback(manager, lambda: told.append("restarted"))
    GuestKernelManager.add_restart_callback(manager, lambda: told.append("dead"), "dead")
    await asyncio.sleep(0)
    assert told == ["dead"]


def test_only_bytecode_of_the_workspace_is_hidden_from_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SourceFileLoader, "set_data", SourceFileLoader.set_data)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    keep_bytecode_out_of_git(tmp_path / "workspace")
    for place in ("workspace", "elsewhere"):
        (tmp_path / place).mkdir()
        (tmp_path / place / f"{place}_module.py").touch()
        monkeypatch.syspath_prepend(str(tmp_path / place))  # pyright: ignore[reportUnknownMemberType]
        import_module(f"{place}_module")
        assert (tmp_path / place / "__pycache__/.gitignore").exists() == (place == "workspace")
