"""What ipybox knows of Slurm: the memory of a job, and which job waits. `make cluster` tries it with a real one."""

import asyncio
import os
import re
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits
from ipybox.remote.application.process import EngineProcess
from ipybox.remote.application.settings import Engine
from ipybox.remote.application.slurm import FIRST_INTERVAL, LAST_INTERVAL, SlurmJob, WaitingJobs, queued_job

GIB, NO_LIMITS = ResourceLimits(memory=1 << 30), ResourceLimits()


@pytest.mark.parametrize("limits", [GIB, NO_LIMITS], ids=["limited", "unlimited"])
def test_options_of_srun_are_variables_which_the_command_overrides(limits: ResourceLimits):
    memory = {"SLURM_MEM_PER_NODE": "1280M"} if limits.memory else {}
    outer = {"PATH": "/bin", "SLURM_MEM_PER_CPU": "100"}
    job = SlurmJob(["/opt/bin/srun", "-n1", "python"], limits, "", outer)
    assert job.command == ["/opt/bin/srun", "-n1", "python"]
    settings = {"SLURM_JOB_NAME": job.name, "SLURM_UNBUFFEREDIO": "1"} | memory
    assert job.env == ({"PATH": "/bin"} if memory else outer) | settings

    remote = SlurmJob(["ssh", "login", "srun", "python"], limits, "", outer)
    assert remote.name != job.name
    unset = ["-uSLURM_MEM_PER_CPU", "-uSLURM_MEM_PER_GPU"] if memory else []
    words = [f"{name}={value}" for name, value in (settings | {"SLURM_JOB_NAME": remote.name}).items()]
    assert remote.command == ["ssh", "login", "env", *unset, *words, "srun", "python"]


def test_command_without_srun_is_unchanged():
    job = SlurmJob(["ssh", "node", "python"], GIB, "", {"SLURM_MEM_PER_CPU": "100"})
    assert (job.command, job.env) == (["ssh", "node", "python"], {"SLURM_MEM_PER_CPU": "100"})


def test_job_that_waits_is_the_last_one_that_srun_names():
    assert queued_job(["srun: job 17 queued and waiting for resources", "x", "srun: job 18 queued"]) == "18"
    assert queued_job(["srun: error: no such partition", "job 17 queued"]) is None


async def test_states_of_jobs_come_from_one_squeue(tmp_path: Path):
    squeue = tmp_path / "squeue"
    squeue.write_text("""#!/bin/sh
        echo "$2" >>"$0.calls"
        printf '17   PENDING     Resources   \\n18  RUNNING  None\\n666  PENDING  x\\nslurm\\n'
    """)
    squeue.chmod(0o755)
    job = SlurmJob([f"{tmp_path}/srun", "x"], NO_LIMITS, "/usr/bin:/bin", {"PATH": "/usr/bin:/bin"})
    assert await job.states(["17", "18", "19"]) == {"17": "PENDING (Resources)", "18": "RUNNING (None)"}
    assert (tmp_path / "squeue.calls").read_text() == "--jobs=17,18,19\n"
    squeue.write_text("#!/bin/sh\ncat /dev/zero\n")
    tracemalloc.start()
    assert await job.states(["17"]) == {}
    assert tracemalloc.get_traced_memory()[1] < 2 << 20
    tracemalloc.stop()
    squeue.write_text("#!/bin/sh\nexit 1\n")
    assert await job.states(["17"]) == {}
    squeue.unlink()
    assert await job.states(["17"]) == {}
    assert await SlurmJob(["ssh", "node", "python"], NO_LIMITS, "/usr/bin:/bin", {}).states(["17"]) == {}


class Squeue:
    """Notes the questions and when they were asked, of one engine whose jobs wait until they are answered for."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked: list[float] = []
        self.jobs: list[list[str]] = []
        self.answer = {"17": "PENDING (Resources)"}
        self.waiting = WaitingJobs(lambda: self.now)

    async def states(self, jobs: Sequence[str]) -> dict[str, str]:
        self.asked.append(self.now)
        self.jobs.append(list(jobs))
        return self.answer

    async def look(self, *jobs: str, seconds: int) -> list[str]:
        """Returns what all jobs wait for in the end, if each of them looks every 2 s."""
        states: list[str] = []
        for _ in range(seconds // 2):
            states = await asyncio.gather(*(self.waiting.state(job, self.states) for job in jobs))
            self.now += 2
        return states


@pytest.mark.parametrize("answered", [True, False], ids=["answers", "fails"])
async def test_all_waiting_jobs_are_asked_for_together_and_ever_more_rarely(answered: bool):
    squeue, jobs = Squeue(), [str(number) for number in range(10, 26)]
    if not answered:
        squeue.answer = {}
    states = await squeue.look(*jobs, seconds=3600)
    assert states[7] == ("job 17, PENDING (Resources)" if answered else "job 17")
    assert states[8] == "job 18"
    assert squeue.jobs[1] == jobs
    intervals = [later - earlier for earlier, later in pairwise(squeue.asked)]
    assert intervals == sorted(intervals)
    assert intervals[0] >= FIRST_INTERVAL
    assert intervals[-1] >= LAST_INTERVAL
    assert len(squeue.asked) < 20


async def test_new_job_is_asked_for_soon_but_not_immediately_after_another_question():
    squeue = Squeue()
    await squeue.look("17", seconds=600)
    before = len(squeue.asked)
    squeue.answer["18"] = "RUNNING (None)"
    assert await squeue.look("17", "18", seconds=10) == ["job 17, PENDING (Resources)", ""]
    assert len(squeue.asked) <= before + 1
    assert squeue.asked[-1] - squeue.asked[-2] >= FIRST_INTERVAL
    squeue.waiting.forget("17")
    squeue.waiting.forget("18")
    await squeue.look("19", seconds=2 + int(FIRST_INTERVAL))
    assert squeue.jobs[-1] == ["19"]


async def test_job_whose_command_was_killed_is_cancelled_by_its_name(tmp_path: Path):
    for program, script in (("srun", "exec sleep 60"), ("scancel", 'echo "$1" >"$0.calls"')):
        (tmp_path / program).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / program).chmod(0o755)
    process = EngineProcess(Engine(name="slurm", command=[f"{tmp_path}/srun", "x"]), NO_LIMITS, "/usr/bin:/bin")
    for fd in await process.spawn():
        os.close(fd)
    await process.end(timeout=0)
    assert re.fullmatch(r"--name=ipybox-[0-9a-f]{12}\n", (tmp_path / "scancel.calls").read_text())


@pytest.mark.parametrize("turns", range(6))
async def test_start_that_is_cancelled_leaves_no_descriptor(turns: int):
    engine = Engine(name="sleep", command=["sleep", "600"])
    process = EngineProcess(engine, NO_LIMITS, "/usr/bin:/bin")
    before = set(os.listdir("/dev/fd"))
    starting = asyncio.create_task(process.spawn())
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    (outcome,) = await asyncio.gather(starting, return_exceptions=True)
    for fd in () if isinstance(outcome, BaseException) else outcome:
        os.close(fd)
    await process.end(timeout=0)
    assert set(os.listdir("/dev/fd")) == before
