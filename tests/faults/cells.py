"""Cells of the model test and the soak: what each one prints says which kernel it ran in, and after which other cells.

A kernel has one variable, `life`: a random name of the kernel and the tags of all cells that have run in it. Each cell
adds its tag and prints how many there are, and the last ones; each of its lines begins with its tag.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "quick", "noisy", "error", "sleep", "async sleep", "late sleep", "swallow", "die", "tools", "tools at once"
]

#: What cells do that end by themselves, and soon.
ENDING: tuple[Kind, ...] = ("quick", "noisy", "error", "tools", "tools at once")

#: What cells do that may cost their kernel.
FATAL: tuple[Kind, ...] = ("die", "swallow")

PRELUDE = """
import os
if 'life' not in globals(): life = [os.urandom(4).hex()]
life.append({tag!r}); print(' '.join([{tag!r}, life[0], str(len(life) - 1), *life[1:][-20:]]), flush=True)
"""

CODE: dict[Kind, str] = {
    "quick": "",
    "noisy": "import time\nfor i in range(5): print(f'{tag} {{i}}', flush=True); time.sleep(0.01)",
    "error": "raise ValueError({tag!r})",
    "sleep": "import time\ntime.sleep(600)",
    "async sleep": "import asyncio\nawait asyncio.sleep(600)",
    "late sleep": "import asyncio, time\nawait asyncio.sleep(0)\ntime.sleep(600)",
    "swallow": "import time\nwhile True:\n    try: time.sleep(600)\n    except KeyboardInterrupt: pass",
    "die": "import signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "tools": """
from registered import scripted
for call in {calls!r}:
    try: outcome = scripted.run_sync('record', {{'text': call}})
    except Exception as e: outcome = ' '.join(str(e).split())
    print(f'{tag} {{call}} {{outcome}}', flush=True)
""",
    "tools at once": """
import asyncio
from registered import scripted
async def called(call):
    try: outcome = await scripted.run('record', {{'text': call}})
    except Exception as e: outcome = ' '.join(str(e).split())
    print(f'{tag} {{call}} {{outcome}}', flush=True)
await asyncio.gather(*map(called, {calls!r}));
""",
}


@dataclass(frozen=True)
class Observation:
    """What a cell has said of its kernel.

    Attributes:
        kernel: The kernel's name.
        tags: Those of the last cells that have run in it, by their number; this one is the last one.
        rest: The other lines, without the tag.
    """

    kernel: str
    tags: dict[int, str]
    rest: tuple[str, ...]


def code(kind: Kind, tag: str, calls: tuple[str, ...] = ()) -> str:
    """Returns the code of a cell.

    Args:
        kind: What it does.
        tag: A name that no other cell has.
        calls: What its tool calls are called with.
    """
    return PRELUDE.format(tag=tag) + CODE[kind].format(tag=tag, calls=calls)


def observed(tag: str, text: str | None) -> Observation | None:
    """Returns what an output says, or None if the cell has not printed anything.

    Raises:
        AssertionError: If a line comes from another cell.
    """
    if not text:
        return None
    lines = [line.split() for line in text.splitlines()]
    assert all(line[:1] == [tag] for line in lines), f"output of another cell in that of {tag}: {text!r}"
    kernel, count, *tags = lines[0][1:]
    numbered = dict(enumerate(tags, start=int(count) - len(tags)))
    return Observation(kernel, numbered, tuple(" ".join(line[1:]) for line in lines[1:]))
