"""A user of Slurm follows docs/other-machines.md, with a fresh environment on a shared file system."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.machines import HEAD, NODES, queue_is_empty
from tests.servers import ROOT
from tests.test_readme import INSTALL_TIMEOUT, blocks_of

pytestmark = pytest.mark.kernel

PAGE = (ROOT / "docs" / "other-machines.md").read_text()

BY_NAME = """
from ipybox import Executor

with Executor(engine="slurm") as executor:
    print(executor.run("import socket; print(socket.gethostname())").text)
"""


async def test_commands_and_settings_of_the_page_run_on_nodes(tmp_path: Path):
    (block,) = (block for block in blocks_of(PAGE, "bash") if "srun" in block)
    install, script = block.replace("/shared", str(tmp_path)).split("\n", 1)
    # uv installs the same in a tenth of pip's processor time. Where uv finds no packages, pip does it.
    pip = f"{tmp_path}/venv/bin/pip install ."
    uv = f"{Path(sys.executable).with_name('uv')} pip install --quiet --python {tmp_path}/venv/bin/python ."
    assert f"&& {pip} &&" in install
    install = install.replace(pip, f"{{ {uv} || {pip}; }}")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SLURM_CONF": os.environ["SLURM_CONF"]}
    constraints = {name: str(ROOT / "constraints.txt") for name in ("PIP_CONSTRAINT", "UV_CONSTRAINT")}
    run(["sh", "-ec", install], ROOT, os.environ | constraints)  # the head of the cluster reaches no index

    project = tmp_path / "project"
    assert run([*HEAD, "sh", "-ec", script], project, env).strip() in NODES

    (engines,) = blocks_of(PAGE, "yaml")
    (project / "by_name.py").write_text(BY_NAME)
    file = tmp_path / ".config" / "ipybox" / "engines.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(engines.replace("/shared", str(tmp_path)))
    python = re.search(r"[^\s\"]+/venv/bin/python", script)
    assert python is not None
    assert run([*HEAD, python[0], "by_name.py"], project, env).strip() in NODES
    await queue_is_empty()


def run(command: list[str], cwd: Path, env: dict[str, str]) -> str:
    """Returns what a command that succeeds prints."""
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
