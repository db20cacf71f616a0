import os
import select
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from ipybox.support import probe as probing
from ipybox.support.probe import probe
from tests.servers import WAIT


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: Path):
    alive = tmp_path / "alive"  # open as long as one of them is there
    os.mkfifo(alive)
    fd = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    try:
        script = f"trap '' TERM; exec 3> {alive}; echo started >&3; sleep 1000 & while :; do sleep 1000; done"
        outcome = probe(["/bin/sh", "-c", script], timeout=0.5)
        assert outcome.failure == "did not finish within 0.5 s"
        assert os.read(fd, 100) == b"started\n"
        poll = select.poll()
        poll.register(fd, 0)
        assert poll.poll(WAIT * 1000) == [(fd, select.POLLHUP)]
    finally:
        os.close(fd)


def test_a_child_that_keeps_the_output_open_is_killed_and_no_failure():
    start = time.monotonic()
    outcome = probe(["/bin/sh", "-c", "sleep 1000 & echo 1.2"], timeout=0.5)
    assert (outcome.output, outcome.failure) == ("1.2\n", None)
    assert time.monotonic() - start < WAIT


def test_a_process_that_exits_kills_the_programs_of_its_other_threads():
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(probe, ["/bin/sleep", "1000"], timeout=WAIT)
        while not outcome.done():
            probing.end_all()
            wait([outcome], 0.1)
    assert outcome.result().failure == "was killed by signal 9"


def test_endless_output_is_cut():
    outcome = probe(["/bin/sh", "-c", "exec yes"], timeout=0.5)
    assert outcome.failure == "did not finish within 0.5 s"
    assert len(outcome.output) == probing.KEPT_OUTPUT


def test_a_program_that_the_system_can_not_start_is_a_failure(tmp_path: Path):
    program = tmp_path / "odd"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    assert probe([str(program)]).failure == "can't be started (Exec format error)"
