"""What a row of the table is: a function that reads untrusted input, and input of any size for it."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ipybox.support.errors import IpyboxError

#: Makes input of about so many bytes; what it needs of files, it makes in the directory.
Make = Callable[[int, Path], Any]


#: How many times as large the larger one of two inputs is.
GROWTH = 8


@dataclass(frozen=True)
class Reader:
    """A function that reads what a guest, a workspace, an MCP server, a node or an unauthenticated client sends.

    Attributes:
        covers: The places in `ipybox` that it tests, as `package/module:function`.
        read: Reads input.
        tokens: Parts of texts with a meaning to it, of which input is put together by chance.
        prepare: Makes of a text what is read, such as a file in the directory.
        inputs: More input that is known to be hard, by its name: texts, or what is read.
        largest: Bytes of the largest input that is tried.
        once: Whether it can read an input only once.
        errors: What it may raise.
    """

    covers: Sequence[str]
    read: Callable[[Any], object]
    tokens: Sequence[bytes] = ()
    prepare: Callable[[bytes, Path], Any] = lambda text, _: text
    inputs: dict[str, Make] = field(default_factory=dict[str, Make])
    largest: int = 1 << 17
    once: bool = False
    errors: tuple[type[BaseException], ...] = (ValueError, OSError, IpyboxError)

    def makers(self, seed: int, count: int) -> dict[str, Make]:
        """Returns its input: each token repeated, what is known to be hard, and `count` made up by chance."""
        chance = random.Random(seed)
        found = {repr(token): repeated(token) for token in self.tokens} | self.inputs
        for _ in range(count if self.tokens else 0):
            counts = (chance.randint(*most) for most in ((0, 2), (1, 4), (0, 2)))
            begin, unit, end = (b"".join(chance.choices(self.tokens, k=number)) for number in counts)
            found[f"{begin!r} {unit!r} {end!r}"] = repeated(unit, begin, end)
        return found


def repeated(unit: bytes, begin: bytes = b"", end: bytes = b"") -> Make:
    """Returns what makes texts of one unit, repeated."""
    return lambda size, _: begin + unit * (size // len(unit)) + end
