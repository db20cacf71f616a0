"""Images as models take them: of a type, a size and a number of bytes that no API refuses."""

import logging
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

#: Points of the longer side; of larger ones, models see no more.
MAX_SIDE = 1568

#: Bytes of a picture.
MAX_BYTES = 1_500_000

#: How many pictures a result has, which all stay in the context.
MAX_PICTURES = 8

#: Seconds that looking at one may take.
TIMEOUT = 15.0

_SHRINK = Path(__file__).with_name("shrink.py")


@dataclass(frozen=True)
class Picture:
    """An image for a model."""

    mime_type: str
    data: bytes


def pictures(images: Sequence[bytes | None]) -> list[Picture | str]:
    """Returns a picture for each image, or why there is none. Blocks."""
    shown = [_picture(data) for data in images[:MAX_PICTURES]]
    return [*shown, *[f"more than {MAX_PICTURES}"] * (len(images) - len(shown))]


def _picture(data: bytes | None) -> Picture | str:
    if data is None:
        return "too large"
    command = [sys.executable, "-I", str(_SHRINK), str(MAX_SIDE), str(MAX_BYTES)]
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=TIMEOUT, env={}, check=False)
    except (OSError, subprocess.SubprocessError) as exc:
        logger.warning("can't look at an image: %s", exc)
        return "it can't be looked at"
    mime_type, line, smaller = done.stdout.partition(b"\n")
    if done.returncode != 0 or not line:
        logger.debug("an image can't be shown: %s", done.stderr.decode(errors="replace"))
        return "damaged, or too large"
    return Picture(mime_type.decode(), smaller or data)
