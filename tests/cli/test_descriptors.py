"""The limit of open descriptors: raised as far as it may be."""

import resource
import subprocess
import sys

import pytest

PROGRAM = """
import logging, resource, sys
from ipybox.cli.command import allow_descriptors
logging.basicConfig(stream=sys.stdout, format="%(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
allow_descriptors({count})
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "count", "expected"),
    [
        (256, 512, 400, ["400"]),
        (256, 512, 100, ["256"]),
        (
            *(256, 512, 600),
            ["this process may need 600 open files, and the limit is 512: raise it (ulimit -n)", "512"],
        ),
    ],
    ids=["raised", "enough", "too-many"],
)
def test_soft_limit_is_raised_up_to_the_hard_one(soft: int, hard: int, count: int, expected: list[str]):
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= hard
    program = PROGRAM.format(soft=soft, hard=hard, count=count)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == expected
