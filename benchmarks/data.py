"""Data in bulk: output of a cell, and arguments and results of tools."""

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.kernel import running
from benchmarks.measurement import Limit, Measurement, Samples, Setting, Side, take_turns
from benchmarks.subject import Subject
from benchmarks.tools import running as running_tools

#: Bytes that a cell prints or a tool returns, and those of a tool's argument.
OUTPUT_BYTES = 10_000_000
ARGUMENT_BYTES = 1_000_000

#: Bytes of the largest output, and the parts of it with which its time must grow in proportion.
MOST_BYTES = 100_000_000
PARTS = (0.1, 1)

#: How often each part is printed.
TIMES = 3

TOOL = """
from time import perf_counter
from mcptools.measured import {tool}
params = {tool}.Params({argument})
began = perf_counter()
result = {tool}.run(params)
seconds = perf_counter() - began
assert len(result) == {length}
"""


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    kernel, client, limit = "jupyter_client", "mcp.Client", (Limit(1.5),)
    in_proportion = "10 × 10 MB"
    return [
        Measurement("output", "data", "10 MB in one print", kernel, partial(measure_output, lines=False), limit),
        Measurement("lines", "data", "10 MB in 100-byte lines", kernel, partial(measure_output, lines=True), limit),
        Measurement("output-linear", "data", "100 MB in 100-byte lines", in_proportion, measure_growth, (Limit(1.1),)),
        Measurement("argument", "data", "tool call, 1 MB argument", client, measure_argument, limit),
        Measurement("result", "data", "tool call, 10 MB result", client, measure_result, limit),
    ]


def measure_output(setting: Setting, lines: bool) -> Samples:
    size = setting.scaled(OUTPUT_BYTES)
    least: dict[Side, int] = {}

    def output(side: Side, subject: Subject) -> list[float]:
        answer: dict[str, Any] = subject.ask("output", code=printing(size, lines))
        least[side] = min(least.get(side, size), int(answer["characters"]))
        return [answer["seconds"]]

    with running(setting) as subjects:
        samples = take_turns(setting, {side: partial(output, side, it) for side, it in subjects.items()})
    remarks = [
        f"{side} dropped all but {number / 1e6:.1f} of {size / 1e6:g} MB"
        for side, number in least.items()
        if number < size - 1
    ]
    return Samples(samples, remarks)


def measure_growth(setting: Setting) -> Samples:
    """Compares the time of much output with that of a tenth of it, of the same executor."""
    ours: Setting = Setting(setting.rounds, {"ipybox": setting.interpreters["ipybox"]}, setting.quick)
    most = setting.scaled(MOST_BYTES)
    seconds: dict[Side, dict[float, list[float]]] = {}
    with running(ours) as subjects:
        for _ in range(1 if setting.quick else TIMES):
            for part in PARTS:
                for side, subject in subjects.items():
                    answer: dict[str, Any] = subject.ask("output", code=printing(int(most * part), lines=True))
                    seconds.setdefault(side, {}).setdefault(part, []).append(answer["seconds"])
    measured = seconds["ipybox"]
    return Samples({"ipybox": measured[PARTS[-1]], "floor": [value / PARTS[0] for value in measured[PARTS[0]]]})


def measure_argument(setting: Setting) -> Samples:
    size = setting.scaled(ARGUMENT_BYTES)
    return _measure_tool(setting, "length", {"text": "x" * size}, f"text='x' * {size}", len(str(size)))


def measure_result(setting: Setting) -> Samples:
    size = setting.scaled(OUTPUT_BYTES)
    return _measure_tool(setting, "repeat", {"count": size}, f"count={size}", size)


def printing(size: int, lines: bool) -> str:
    """Returns code that prints so many bytes, in lines of 100 bytes or in one."""
    return f"for _ in range({size // 100}): print('x' * 99)" if lines else f"print('x' * {size})"


def _measure_tool(setting: Setting, tool: str, arguments: dict[str, Any], argument: str, length: int) -> Samples:
    code = TOOL.format(tool=tool, argument=argument, length=length)

    def call(executor: Subject) -> list[float]:
        return [executor.ask("evaluate", code=code, expression="seconds")]

    with running_tools(setting) as (session, executors):
        sides: dict[Side, Callable[[], list[float]]] = {
            "floor": partial(session.ask, "call", tool=tool, arguments=arguments, count=1)
        }
        for side, executor in executors.items():
            sides[side] = partial(call, executor)
        return Samples(take_turns(setting, sides))
