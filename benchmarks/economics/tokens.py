"""Counts tokens, with a tokenizer in an environment of its own, and those of images by their size."""

import io
import json
import subprocess
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import IO, Self

from PIL import Image

#: What runs in the environment.
COUNTER = Path(__file__).with_name("count_tokens.py")

#: Pixels of a token, and of the longer side of what a model sees. Source: Anthropic's guide to vision.
PIXELS_PER_TOKEN = 750
MAX_SIDE = 1568


class Tokens:
    """Counts tokens as a `benchmarks.conversation.Meter`, inside `with`.

    Args:
        python: An interpreter with the packages of `count_tokens.py`.
    """

    def __init__(self, python: Path):
        self._python = python
        self._count = lru_cache(maxsize=None)(self._ask)

    def __enter__(self) -> Self:
        command = [str(self._python), str(COUNTER)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__(None, None, None)

    def text(self, text: str) -> int:
        """Returns the tokens of a text."""
        return self._count(text)

    def image(self, data: bytes) -> int:
        """Returns the tokens of an image, which depend on its width and height only."""
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
        scale = min(1, MAX_SIDE / max(width, height))
        return ceil(width * height * scale**2 / PIXELS_PER_TOKEN)

    def _ask(self, text: str) -> int:
        stdin, stdout = _pipe(self._process.stdin), _pipe(self._process.stdout)
        stdin.write(json.dumps(text) + "\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._python} {COUNTER} ended: `make economics` makes its environment")
        return int(answer)


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
