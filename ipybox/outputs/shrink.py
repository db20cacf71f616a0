"""Looks at one picture, in a process of its own: python -I shrink.py MAX_SIDE MAX_BYTES <picture >answer

The bytes are whatever code in a kernel has sent. Decoding them can take any amount of time and memory, or find a fault
in a decoder, so the application does not do it, and a model's API is sent nothing that could not be decoded: it would
refuse the conversation from then on. The answer is a line with the type, then the bytes of a smaller picture, or
nothing if it can be sent as it is. The exit status is not 0 if it can't be sent.

Standard library and Pillow only, as `-I` and a path hide the package.
"""

import io
import resource
import sys
import warnings

from PIL import Image

#: The formats that kernels send: no decoder but theirs gets to see the bytes.
TYPES = {"PNG": "image/png", "JPEG": "image/jpeg"}

#: Points of a picture: of more, a memory limit would decide.
MAX_PIXELS = 60_000_000
MEMORY = 1 << 30
CPU_SECONDS = 10


def main(max_side: int, max_bytes: int) -> None:
    """Answers on stdout."""
    limit()
    data = sys.stdin.buffer.read()
    with Image.open(io.BytesIO(data), formats=list(TYPES)) as picture:
        if picture.width * picture.height > MAX_PIXELS:
            sys.exit("too large")
        picture.load()
        if max(picture.size) <= max_side and len(data) <= max_bytes:
            answer(TYPES[picture.format or ""], b"")
        else:
            answer(*smaller(picture, max_side, max_bytes))


def limit() -> None:
    """Limits what this process can take, and lets it write no file."""
    warnings.simplefilter("ignore")
    Image.MAX_IMAGE_PIXELS = None  # there is a limit of our own
    # Not RLIMIT_AS, which counts what is only reserved, and which macOS does not take.
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
    """Returns the type and bytes of the picture, scaled down as far as both limits ask for."""
    # Others, such as palettes, can't be scaled well, or not be written.
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
    """Returns the bytes of a file with this picture."""
    file = io.BytesIO()
    picture.save(file, form)
    return file.getvalue()


def answer(mime_type: str, data: bytes) -> None:
    """Writes the answer."""
    sys.stdout.buffer.write(mime_type.encode() + b"\n" + data)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
