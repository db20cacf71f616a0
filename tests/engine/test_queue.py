"""What ipybox knows of Slurm: the memory of a job, and which job waits. `make cluster` tries it with a real one."""

import os
import re
from pathlib import Path

import pytest

from ipybox.engine.process import EngineProcess
from ipybox.engine.queue import SlurmJob, queued_job, with_limits
from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits

GIB = ResourceLimits(memory=1 << 30)


@pytest.mark.parametrize(
    ("command", "limits", "expected"),
    [
        (["srun", "-n1", "python"], GIB, ["srun", "--mem=1280M", "-n1", "python"]),
        (["ssh", "login", "/opt/bin/srun", "x"], GIB, ["ssh", "login", "/opt/bin/srun", "--mem=1280M", "x"]),
        (["srun", "--mem=4G", "python"], GIB, ["srun", "--mem=4G", "python"]),
        (["srun", "--mem-per-cpu=4G", "python"], GIB, ["srun", "--mem-per-cpu=4G", "python"]),
        (["srun", "python"], ResourceLimits(), ["srun", "python"]),
        (["ssh", "node", "python"], GIB, ["ssh", "node", "python"]),
    ],
    ids=["srun", "prefix", "given", "per-cpu", "unlimited", "ssh"],
)
def test_memory_limit_is_an_option_of_srun(command: list[str], limits: ResourceLimits, expected: list[str]):
    assert with_limits(command, limits) == expected


def test_job_that_waits_is_the_last_one_that_srun_names():
    assert queued_job(["srun: job 17 queued and waiting for resources", "x", "srun: job 18 queued"]) == "18"
    assert queued_job(["srun: error: no such partition", "job 17 queued"]) is None


def test_job_of_slurm_has_a_name_of_its_own_unless_the_command_names_it():
    first, second = (SlurmJob(["ssh", "login", "srun", "-n1", "python"], "", {}) for _ in range(2))
    assert first.command == ["ssh", "login", "srun", "--unbuffered", f"--job-name={first.name}", "-n1", "python"]
    assert first.name != second.name
    for own in ("-Jmine", "--job-name=mine"):
        job = SlurmJob(["srun", own, "x"], "", {})
        assert (job.name, job.command) == (None, ["srun", "--unbuffered", own, "x"])
    assert SlurmJob(["ssh", "node", "python"], "", {}).command == ["ssh", "node", "python"]


async def test_state_of_a_job_comes_from_squeue_by_its_name(tmp_path: Path):
    squeue = tmp_path / "squeue"
    squeue.write_text("""#!/bin/sh\necho "$2" >>"$0.calls"\nprintf '17   PENDING     Resources   \\n'\n""")
    squeue.chmod(0o755)
    named, own = (
        SlurmJob([f"{tmp_path}/srun", *options, "x"], "/usr/bin:/bin", {"PATH": "/usr/bin:/bin"})
        for options in ((), ("-Jmine",))
    )
    assert await named.state([]) == "job 17, PENDING (Resources)"
    assert await own.state([]) == ""
    assert await own.state(["srun: job 18 queued and waiting for resources"]) == "job 17, PENDING (Resources)"
    assert (tmp_path / "squeue.calls").read_text().splitlines() == [f"--name={named.name}", "--jobs=18"]
    squeue.write_text("#!/bin/sh\necho '17 RUNNING None'\n")
    assert await named.state([]) == ""


async def test_job_whose_command_was_killed_is_cancelled_by_its_name(tmp_path: Path):
    for program, script in (("srun", "exec sleep 60"), ("scancel", 'echo "$1" >"$0.calls"')):
        (tmp_path / program).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / program).chmod(0o755)
    process = EngineProcess([f"{tmp_path}/srun", "x"], (), "/usr/bin:/bin")
    for fd in await process.spawn():
        os.close(fd)
    await process.end(timeout=0)
    assert re.fullmatch(r"--name=ipybox-[0-9a-f]{12}\n", (tmp_path / "scancel.calls").read_text())
