"""Checks one image in a separate process: python -I image_worker.py MAX_SIDE MAX_BYTES <image >answer

Decoding bytes from a kernel can take any amount of time and memory, or hit a bug in a decoder, so the application does
not decode them itself. An image that can't be decoded must not reach a model's API, which would reject the conversation
from then on. The answer is a line with the type, then the bytes of a smaller image, or nothing if the image can be sent
unchanged. The exit status is nonzero if it can't be sent.

`model_output` starts this process. It uses only the standard library and Pillow: with `-I`, it can't import ipybox.
"""

import io
import resource
import sys
import warnings

from PIL import Image

#: The formats that kernels send. No other decoder is used.
TYPES = {"PNG": "image/png", "JPEG": "image/jpeg"}

#: Maximum pixels of an image: beyond that, only the memory limit would stop the decoder.
MAX_PIXELS = 60_000_000
MEMORY = 1 << 30
CPU_SECONDS = 10


def main(max_side: int, max_bytes: int) -> None:
    """Writes the answer to stdout."""
    limit()
    data = sys.stdin.buffer.read()
    with Image.open(io.BytesIO(data), formats=list(TYPES)) as picture:
        if picture.width * picture.height > MAX_PIXELS:
            sys.exit("too large")
        picture.load()
        fits = max(picture.size) <= max_side and len(data) <= max_bytes
        mime_type, shown = (TYPES[picture.format or ""], b"") if fits else smaller(picture, max_side, max_bytes)
    sys.stdout.buffer.write(mime_type.encode() + b"\n" + shown)


def limit() -> None:
    """Limits this process's resources and keeps it from writing files."""
    warnings.simplefilter("ignore")
    Image.MAX_IMAGE_PIXELS = None  # `MAX_PIXELS` is the limit
    # Not RLIMIT_AS, which also counts reserved memory, and which macOS does not accept.
    for kind, value in (
        (resource.RLIMIT_DATA, MEMORY),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def smaller(picture: Image.Image, max_side: int, max_bytes: int) -> tuple[str, bytes]:
    """Returns the type and bytes of the image, scaled down as far as both limits require."""
    # Other modes, such as palettes, scale badly or can't be written.
    picture = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
    while True:
        picture.thumbnail((max_side, max_side))
        if len(data := written(picture, "PNG")) <= max_bytes:
            return "image/png", data
        paper = Image.new("RGB", picture.size, "white")
        paper.paste(picture, mask=picture if picture.mode == "RGBA" else None)
        if len(data := written(paper, "JPEG")) <= max_bytes:
            return "image/jpeg", data
        max_side //= 2


def written(picture: Image.Image, form: str) -> bytes:
    """Returns the picture, encoded in a file format."""
    file = io.BytesIO()
    picture.save(file, form)
    return file.getvalue()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
