"""Saves images and other forms of displays as files, within limits because code can display anything."""

import asyncio
import binascii
import os
import secrets
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

from ipybox.kernel_mgr.display_forms import (
    FILE_TYPES,
    files_of,
    has_broken_image,
    image_of,
    text_of_all,
)
from ipybox.kernel_mgr.output_collector import OutputCollector
from ipybox.support.bounded_json import LARGE_BYTES
from ipybox.support.outputs import Display, ExecutionResult, Stream
from ipybox.support.safe_directory import Directory, open_directory
from ipybox.support.untrusted_paths import real_path

#: Maximum number of non-image files per cell, and of their characters in total.
MAX_FILES = 20
MAX_FILE_CHARS = 16 << 20

#: Maximum bytes of one cell's images that are also kept in memory.
MAX_IMAGE_DATA = 64 << 20

#: Images are decoded in pieces of this many characters, so that none blocks the event loop. A multiple of 4.
IMAGE_PIECE = 1 << 22


class _Form(NamedTuple):
    """A form of a display to save as a file; `number` is the display's index in the outputs."""

    number: int
    suffix: str
    text: str
    is_image: bool = False


class DisplayDirectory:
    """The directory for saved displays, created on first use.

    Args:
        untrusted_root: A directory that code can write: links there are not followed.
        workspace: If it contains the directory and was deleted, the directory is not created again.
    """

    def __init__(self, path: Path, untrusted_root: Path | None, workspace: Path | None):
        self._path = path
        self._untrusted_root = untrusted_root
        in_workspace = workspace and Path(real_path(path)).is_relative_to(workspace.resolve())
        self._base = workspace if in_workspace else None

    async def save(self, collected: OutputCollector) -> ExecutionResult:
        """Saves the displays of one cell and returns its output; notices report what was dropped or not saved."""
        outputs, notices = collected.outputs(), collected.notices()
        for output in outputs:
            if isinstance(output, Display) and (
                output.data.keys() - {"text/plain"} or len(output.data.get("text/plain", "")) > LARGE_BYTES
            ):
                saved = await asyncio.to_thread(self.save_displays, outputs)
                return replace(saved, notices=[*notices, *saved.notices])
        return ExecutionResult(text_of_all(outputs), [], notices=notices, outputs=tuple(outputs))  # the usual case

    def save_displays(self, outputs: list[Stream | Display]) -> ExecutionResult:
        """Saves the displays among outputs. Makes Git ignore a directory that it creates in the workspace. Blocks."""
        saved, shown, forms, broken = ExecutionResult(None, []), [*outputs], list[_Form](), 0
        for number, output in enumerate(outputs):
            if isinstance(output, Display):
                broken += has_broken_image(output)
                forms += [_Form(number, *image, is_image=True)] if (image := image_of(output)) else []
                forms += [_Form(number, *form) for form in files_of(output)]
        omitted = 0
        if forms:
            makes = self._base is not None and not os.path.lexists(self._path)
            try:
                if self._base is not None:
                    self._base.stat()  # a deleted one must not be created again
                with open_directory(self._path, untrusted_root=self._untrusted_root) as directory:
                    if makes:
                        directory.keep_out_of_git()
                    unreadable, omitted = _write(forms, directory, self._path, shown, saved)
                    broken += unreadable
            except OSError as exc:
                notice = f"What the cell displayed can't be saved in {self._path}: {exc}"
                saved, shown = ExecutionResult(None, [], notices=[notice]), outputs
        if broken:
            saved.notices.insert(0, f"Images from {broken} displays were not saved because they are not valid base64.")
        if omitted:
            saved.notices.insert(
                0,
                f"{omitted} displays of HTML, SVG, LaTeX, JSON, GIF, WebP or PDF were not saved: the limit per "
                f"cell is {MAX_FILES} such files and {MAX_FILE_CHARS >> 20} Mi characters in total.",
            )
        return replace(saved, text=text_of_all(shown), outputs=tuple(shown))


def _write(
    forms: Iterable[_Form], directory: Directory, path: Path, outputs: list[Stream | Display], saved: ExecutionResult
) -> tuple[int, int]:
    """Writes the forms to new files, which it adds to the displays.

    Returns:
        The number of broken images, and of forms that the limits exclude.
    """
    room, text_room, broken, omitted = MAX_IMAGE_DATA, MAX_FILE_CHARS, 0, 0
    for form in forms:
        if not form.is_image:
            if len(saved.files) >= MAX_FILES or len(form.text) > text_room:
                omitted += 1
                continue
            text_room -= len(form.text)
        is_text = form.suffix in FILE_TYPES.values()
        data = form.text.encode(errors="replace") if is_text else _decoded(form.text)
        if data is None:
            broken += form.is_image
            continue
        file = path / f"{uuid.uuid4().hex if form.is_image else secrets.token_hex(4)}{form.suffix}"
        directory.write_new(file.name, data)
        display = cast(Display, outputs[form.number])
        outputs[form.number] = replace(display, files=(*display.files, file))
        if form.is_image:
            held = data if len(data) <= room else None
            room -= len(held or b"")
            saved.images.append(file)
            saved.image_data.append(held)
        else:
            saved.files.append(file)
    return broken, omitted


def _decoded(image: str) -> bytes | None:
    data = bytearray()
    try:
        for start in range(0, len(image), IMAGE_PIECE):
            data += binascii.a2b_base64(image[start : start + IMAGE_PIECE])
    except ValueError:
        return None
    return bytes(data)
