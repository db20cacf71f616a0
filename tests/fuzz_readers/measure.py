"""Measures readers, each in a process of its own, with limits of CPU time and memory, and prints what they need.

    python -m tests.fuzz_readers.measure SEED COUNT [READER ...]

All readers are imported once. For each, a child is forked that prints a line of JSON for each input.
"""

import gc
import json
import logging
import os
import resource
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ipybox.support.scratch import remove_tree
from tests.fuzz_readers.reader import GROWTH, Make, Reader
from tests.fuzz_readers.table import READERS

#: Seconds of CPU time for all input of one reader, and for one input.
CPU_LIMIT = 60

#: What a reader may need besides four times its input: buffers, and the objects of as many values as are allowed.
MEMORY = 128 << 20

#: Where files cost no more than their readers; on other disks, to make and to remove them takes ten times as long.
MEMORY_DISK = Path("/dev/shm")

#: Seconds that are long enough to be measured; below them, a reader is called again.
MEASURABLE = 0.01

#: How many times the CPU time of an input a larger one may take, which is eight times as large. In quadratic time, it
#: takes 64 times as long; in linear time, up to 15 times if only the smaller one fits in the processor's caches.
MOST = 20

#: Seconds of CPU time that any input of this size may take: below, caches, the allocator and Python's parser decide.
SHORT = 0.1

#: How often an input is measured that seems to take too long: other processes can only make it longer, most of all what
#: the kernel does for files.
ATTEMPTS = 5


def measured(reader: Reader, make: Make, size: int) -> float:
    """Returns the CPU time of one call, on average."""
    directory = Path(tempfile.mkdtemp(prefix="ipybox-fuzz-", dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None))
    try:
        given = make(size, directory)
        given = reader.prepare(given, directory) if isinstance(given, bytes) else given
        bound(4 * size + MEMORY)
        return called(reader, given)
    finally:
        bound(None)
        remove_tree(directory)


def called(reader: Reader, given: Any) -> float:
    """Calls a reader, again until it takes long enough to be measured, and returns the time of one call."""
    begun, calls, taken = time.process_time(), 0, 0.0
    while not calls or (taken < MEASURABLE and calls < 100 and not reader.once):
        with suppress(*reader.errors):
            reader.read(given)
        calls += 1
        taken = time.process_time() - begun
    return taken / calls


def both(reader: Reader, make: Make) -> tuple[float, float]:
    """Returns the CPU times of a small and a large input."""
    pairs: list[tuple[float, float]] = []
    while len(pairs) < ATTEMPTS and not any(large <= max(SHORT, MOST * small) for small, large in pairs):
        # Both in each attempt: what other processes do to the caches must not count for one of them only.
        pairs.append((measured(reader, make, reader.largest // GROWTH), measured(reader, make, reader.largest)))
    return min(pairs, key=lambda pair: pair[1] / max(pair[0], 1e-9))


def bound(more: int | None) -> None:
    """Limits the memory of this process to what it has, and some more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard if more is None else pages * resource.getpagesize() + more, hard))


def report(name: str, **fields: Any) -> None:
    """Prints a line."""
    print(json.dumps({"reader": name, **fields}), flush=True)


def run(name: str, reader: Reader, seed: int, count: int) -> None:
    """Measures all input of a reader."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT, CPU_LIMIT))
    gc.disable()
    logging.disable()
    for number, (text, make) in enumerate(reader.makers(seed, count).items()):
        report(name, input=text, begun=number)
        try:
            small, large = both(reader, make)
        except BaseException as exc:
            report(name, input=text, error=f"{type(exc).__name__}: {exc}"[:300])
        else:
            report(name, input=text, small=small, large=large)
        gc.collect()


def main() -> None:
    """Measures the readers that are named, by default all."""
    seed, count = map(int, sys.argv[1:3])
    gc.freeze()  # what is imported need not be collected for each input
    for name in sys.argv[3:] or READERS:
        child = os.fork()
        if child == 0:
            run(name, READERS[name], seed, count)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        report(name, status=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
