"""Images for models, in a type and size that every API accepts."""

import logging
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

from ipybox.code_exec.model_output import ModelImage

logger = logging.getLogger(__name__)

#: Limits of an image: pixels of its longer side, beyond which models see no more detail, and bytes; and seconds for the
#: checks of all images in a result, because decoding a small JPEG can take ten.
MAX_SIDE = 1568
MAX_BYTES = 1_500_000
TIMEOUT = 15.0

#: Maximum images in a result: all stay in the context.
MAX_MODEL_IMAGES = 8

_WORKER = Path(__file__).with_name("image_worker.py")


def model_images(images: Sequence[bytes | None]) -> list[ModelImage]:
    """Returns each image as a content block of MCP, or the reason why it can't be shown. Blocks."""
    end = time.monotonic() + TIMEOUT
    shown = [_picture(data, end) for data in images[:MAX_MODEL_IMAGES]]
    return [*shown, *[f"more than {MAX_MODEL_IMAGES}"] * (len(images) - len(shown))]


def _picture(data: bytes | None, end: float) -> ModelImage:
    if data is None:
        return "too large"
    command = [sys.executable, "-I", str(_WORKER), str(MAX_SIDE), str(MAX_BYTES)]
    seconds = max(0, end - time.monotonic())
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=seconds, env={}, check=False)
    except (OSError, subprocess.SubprocessError) as exc:
        logger.warning("can't check an image: %s", exc)
        return "it can't be checked"
    mime_type, line, smaller = done.stdout.partition(b"\n")
    if done.returncode != 0 or not line:
        logger.debug("can't show an image: %s", done.stderr.decode(errors="replace"))
        return "damaged or too large"
    return {"type": "image", "data": b64encode(smaller or data).decode(), "mimeType": mime_type.decode()}
