import subprocess
import sys
import threading

import pytest

from ipybox.guest import descendants


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists processes in /proc")
def test_processes_that_end_while_they_are_listed_are_no_error():
    for _ in range(100):
        processes = [subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(10)]
        ended = threading.Event()

        def end(processes: list[subprocess.Popen[bytes]] = processes, ended: threading.Event = ended):
            for process in processes:
                process.communicate()
            ended.set()

        thread = threading.Thread(target=end)
        thread.start()
        while not ended.is_set():
            for process in processes:
                descendants.below_child(process.pid)
        thread.join()
