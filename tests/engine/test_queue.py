"""What ipybox knows of Slurm: the memory of a job, and which job waits. `make cluster` tries it with a real one."""

import pytest

from ipybox.engine.queue import queued_job, with_limits
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
