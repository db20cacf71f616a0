"""Which processes pause garbage collection: each test starts one."""

import subprocess
import sys

from tests.servers import WAIT

#: Notes what is done to the collector.
WATCHED = """
import asyncio, gc
calls = []
gc.disable = lambda: calls.append("disable")
gc.freeze = lambda: calls.append("freeze")
"""

STARTED = """
from ipybox import CodeExecutor
async def main():
    async with CodeExecutor() as executor:
        await executor.execute("1")
asyncio.run(main())
print(calls)
"""


def printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT * 2, check=True)
    return done.stdout.strip()


def test_the_garbage_of_an_application_is_left_alone():
    assert printed(WATCHED + STARTED) == "[]"


def test_a_process_of_ipybox_pauses_collection():
    own = "from ipybox.support.gc_pause import mark_own_process\nmark_own_process()\n"
    assert printed(WATCHED + own + STARTED) == "['disable', 'freeze']"


def test_it_is_enabled_again_and_stays_disabled_where_it_was():
    code = """
import gc
from ipybox.support.gc_pause import gc_paused
with gc_paused(own=True):
    inside = gc.isenabled()
after = gc.isenabled()
gc.disable()
with gc_paused(own=True):
    pass
print(inside, after, gc.isenabled())
"""
    assert printed(code) == "False True False"


def test_a_process_of_ipybox_exits_without_a_last_collection():
    code = """
import atexit, gc
from ipybox.support import gc_pause
gc_pause.skip_collection_at_exit()
before = gc.isenabled()
gc_pause.mark_own_process()
gc_pause.skip_collection_at_exit()
atexit.register(lambda: print(before, gc.isenabled(), gc.get_freeze_count() > 0, end=""))
"""
    assert printed(code) == "True False True"
