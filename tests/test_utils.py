import threading

import pytest

from ipybox.utils import arun


async def test_a_function_runs_beside_the_event_loop_and_its_result_or_error_comes_back():
    assert await arun(threading.current_thread) is not threading.current_thread()
    assert await arun(int, "ff", base=16) == 255
    with pytest.raises(ZeroDivisionError):
        await arun(divmod, 1, 0)
