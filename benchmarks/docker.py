"""ipybox in a container, compared with ipybox outside of one: from the spawn to the answer to `initialize`."""

import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.mcp_mode import initialize
from benchmarks.measurement import Limit, Measurement, Samples, Setting, Side, take_turns


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    limit = Limit(1, plus=1.5)
    return [
        Measurement(
            "docker-start", "docker", "ipybox docker → initialized", "the same without docker", measure_start, (limit,)
        )
    ]


def measure_start(setting: Setting) -> Samples:
    with tempfile.TemporaryDirectory(prefix="ipybox-bench-") as name:
        workspace = Path(name)
        if os.geteuid() == 0:
            os.chown(workspace, 1000, 1000)  # as a container of an ordinary user is what people have
        outside = [sys.executable, "-m", "ipybox", "--workspace", name]
        # Without network, as not every engine has one of its own.
        inside = [sys.executable, "-m", "ipybox", "docker", "--workspace", name, "--network", "none"]
        sides: dict[Side, Callable[[], list[float]]] = {
            "floor": partial(initialize, outside, workspace),
            "ipybox": partial(initialize, inside, workspace),
        }
        return Samples(take_turns(setting, sides))
