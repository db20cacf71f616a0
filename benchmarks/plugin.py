"""The first response of the plugin's launcher, compared with ipybox in the environment that the launcher created."""

import shutil
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.mcp_mode import initialize
from benchmarks.measurement import Limit, Measurement, Samples, Setting, take_turns
from tests.claude.cli import package_caches
from tests.claude.launcher import Plugin, served


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    floor = "python -I -m ipybox"
    limit = Limit(1, plus=0.2)
    return [Measurement("plugin-start", "plugin", "plugin: spawn → initialized", floor, measure_start, (limit,))]


def measure_start(setting: Setting) -> Samples:
    with tempfile.TemporaryDirectory(prefix="ipybox-bench-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        without_uv, plugin = Plugin(directory / "venv", hidden={"uv"}), Plugin(directory / "uv")
        for it in (without_uv, plugin):
            it.env |= {variable: str(it.root.with_name(variable)) for variable in package_caches()}
        remarks = [
            f"the first start, {how}, with nothing downloaded yet: {_first_cell(it):.1f} s until a cell has run"
            for how, it in (("with uv", plugin), ("without uv", without_uv))
        ]
        (version,) = plugin.versions
        ipybox = [str(version / "bin" / "python"), "-I", "-m", "ipybox", f"--workspace={plugin.workspace}"]
        samples = take_turns(
            setting,
            {"floor": partial(_initialize, ipybox, plugin.env, plugin.workspace), "ipybox": partial(_launch, plugin)},
        )
    return Samples(samples, remarks)


def _first_cell(plugin: Plugin) -> float:
    begun = time.perf_counter()
    with served(plugin) as client:
        client.execute("1")
        return time.perf_counter() - begun


def _launch(plugin: Plugin) -> list[float]:
    launcher = ["sh", str(plugin.root / "launch" / "launch.sh"), "serve", "plain", "--memory-limit="]
    return _initialize(launcher, plugin.env, plugin.workspace)


def _initialize(command: list[str], env: Mapping[str, str], workspace: Path) -> list[float]:
    program = shutil.which("env")
    assert program is not None, "every POSIX system has it"
    variables = [f"{name}={value}" for name, value in env.items()]
    return initialize([program, "-i", *variables, *command], workspace)
