"""Starts the process that infers models from samples (`infer_models.py`).

The samples come from a kernel. The generated source is not executed here: the kernel receives it as text and writes it
into the workspace.
"""

import asyncio
import logging
import sys
from functools import partial
from pathlib import Path

from ipybox.support.child import end_group
from ipybox.support.tasks import TaskSet

logger = logging.getLogger(__name__)

#: Maximum bytes of the samples, and of the generated source.
MAX_SAMPLES_BYTES = 1 << 20
MAX_MODELS_BYTES = 128 << 10

#: Maximum seconds for inference.
TIMEOUT = 30.0

_SCRIPT = Path(__file__).with_name("infer_models.py")


async def infer_models(samples: bytes) -> str:
    """Returns the source of pydantic models for a JSON array of samples; `ParseResult` models a whole sample.

    Raises:
        ValueError: If no models can be inferred; the message says why.
    """
    start = asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-B", str(_SCRIPT)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
        start_new_session=True,
    )
    end = partial(end_group, timeout=0)
    process = await TaskSet().undo(start, end, cancel=False)
    try:
        async with asyncio.timeout(TIMEOUT):
            models, errors = await process.communicate(samples)
    except TimeoutError:
        raise ValueError(f"inferring models took longer than {TIMEOUT:g} s: use smaller samples") from None
    finally:
        await asyncio.shield(end(process))
    if process.returncode:
        message = errors.decode(errors="replace").strip()
        logger.debug("no models were inferred: %s", message)
        # A single line is the script's own message; several are a traceback or the like.
        raise ValueError(message if message and "\n" not in message else "can't infer models from these samples")
    if len(models) > MAX_MODELS_BYTES:
        raise ValueError(f"the models are {len(models):,} bytes; the limit is {MAX_MODELS_BYTES:,}: trim the samples")
    return models.decode()
