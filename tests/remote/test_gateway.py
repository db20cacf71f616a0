"""Engines that provide no node: the errors say what is wrong and what to do."""

import asyncio
from importlib.metadata import version
from pathlib import Path

import pytest

from ipybox import CodeExecutor, ExecutorConfig
from ipybox.errors import GatewayError, SandboxError
from ipybox.remote.application import gateway, slurm
from ipybox.remote.wire import protocol
from tests.servers import WAIT

PREAMBLE = f"ipybox-node {version('ipybox')}"

#: Sends nothing but settings, which are empty.
BUSY = r"echo busy >&2; while sleep 0.1; do printf '\0\0\0\4\0\0\0\0\0'; done"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no such partition >&2; exit 3", "did not provide a node: .* exited with status 3:\nno such partition$"),
        ("echo Welcome; exit 0", "did not provide a node: .* exited with status 0\nit printed: Welcome$"),
        (
            "echo No module named ipybox >&2; exit 1",
            "Install ipybox on the node, for the Python in the engine's command.$",
        ),
        (
            "echo ipybox-node 0.1; cat",
            "ipybox 0.1, but this machine runs .*: install the same version on the node$",
        ),
        ("yes; cat", "its output does not come from `python -m ipybox.node`"),
        (f"echo '{PREAMBLE}'; cat /dev/zero", "the node sent invalid HTTP/2"),
        (f"echo '{PREAMBLE}'; echo gone >&2; exit 4", "exited with status 4:\ngone$"),
        (
            "echo waiting for resources >&2; cat",
            "did not provide a node within 1 s \\(queue_timeout\\)\nwaiting for resources$",
        ),
        (f"echo '{PREAMBLE}'; cat >&2", "exited during startup: the node has not responded for 0.5 s"),
        (f"echo '{PREAMBLE}'; {BUSY}", "did not start its gateway within 2 s\nbusy$"),
    ],
    ids=["ends", "prints", "no-ipybox", "version", "noise", "wire", "ends-late", "queue", "silent", "busy"],
)
async def test_command_that_provides_no_node_is_an_error_that_says_why(
    tmp_path: Path, script: str, message: str, monkeypatch: pytest.MonkeyPatch
):
    for module, name, seconds in (
        (gateway, "START_TIMEOUT", 2),
        (protocol, "PING_INTERVAL", 0.1),
        (protocol, "NODE_LOST_AFTER", 0.5),
    ):
        monkeypatch.setattr(module, name, seconds)
    executor = CodeExecutor(working_dir=tmp_path, engine=["sh", "-c", script], queue_timeout=1)
    async with asyncio.timeout(WAIT):
        with pytest.raises(GatewayError, match=message):
            await executor.start()


async def test_command_that_is_not_there_is_an_error(tmp_path: Path):
    executor = CodeExecutor(working_dir=tmp_path, engine=["no-such-scheduler", "-n1"])
    with pytest.raises(GatewayError, match="the engine's command was not found: no-such-scheduler: install it"):
        await executor.start()


async def test_job_that_waits_in_a_queue_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`make cluster` tries it with a real scheduler."""
    monkeypatch.setattr(gateway, "LOOK_INTERVAL", 0.2)
    monkeypatch.setattr(slurm, "FIRST_INTERVAL", 0.2)
    for name, script in (
        ("srun", "echo 'srun: job 17 queued and waiting for resources' >&2; exec sleep 60"),
        ("squeue", "if [ -e $0.asked ]; then echo 17 PENDING Priority; else echo 17 PENDING; touch $0.asked; fi"),
        ("scancel", ""),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "workspace").mkdir()
    executor = CodeExecutor(working_dir=tmp_path / "workspace", engine=[f"{tmp_path}/srun", "x"], queue_timeout=2)
    with pytest.raises(GatewayError, match=r"waiting for the scheduler: job 17, PENDING \(Priority\)\n"):
        await executor.start()
    assert not executor.status.waits_for


async def test_node_without_a_sandbox_refuses_to_start_one(tmp_path: Path, command: list[str]):
    engine = ["/usr/bin/env", "PATH=/nowhere", *command[1:]]
    with pytest.raises(SandboxError, match="srt"):
        await CodeExecutor(working_dir=tmp_path, engine=engine, sandbox=True).start()


async def test_program_of_the_workspace_is_not_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "srun-of-code").write_text("#!/bin/sh\n")
    (tmp_path / "srun-of-code").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(GatewayError, match="was not found"):
        await CodeExecutor(working_dir=tmp_path, engine=["srun-of-code"]).start()


async def test_command_gets_no_secrets_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("API_KEY", "secret")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    executor = CodeExecutor(working_dir=tmp_path, engine=["sh", "-c", "env >&2; pwd >&2; exit 1"])
    with pytest.raises(GatewayError) as raised:
        await executor.start()
    assert "SLURM_CONF=/etc/slurm.conf" in str(raised.value)
    assert "secret" not in str(raised.value)
    assert str(raised.value).endswith("\n/")


def test_engine_and_a_port_of_the_gateway_exclude_each_other(tmp_path: Path):
    with pytest.raises(ValueError, match="kernel_gateway_port can't be used with an engine"):
        CodeExecutor(working_dir=tmp_path, engine=["x"], kernel_gateway_port=0)


def test_programs_of_the_workspace_are_refused_as_in_a_sandbox(tmp_path: Path):
    assert ExecutorConfig(working_dir=tmp_path, engine=["x"]).writable_places.confined
    assert not ExecutorConfig(working_dir=tmp_path).writable_places.confined
