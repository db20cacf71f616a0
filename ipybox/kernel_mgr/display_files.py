"""Saves the images and other forms of displays as files, within limits, because code can display anything."""

import asyncio
import binascii
import os
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from ipybox.kernel_mgr.display_forms import (
    BASE64_TYPES,
    FILE_TYPES,
    IMAGE_TYPES,
    files_of,
    has_broken_image,
    image_of,
)
from ipybox.support.outputs import Display, Stream
from ipybox.support.safe_directory import Directory, open_directory

#: Maximum number of files per cell that are not images, and of their characters together.
MAX_FILES = 20
MAX_FILE_CHARS = 16 << 20

#: Bytes of the images of one cell that are also kept in memory.
MAX_IMAGE_DATA = 64 << 20

#: Images are decoded in pieces of this many characters, so that none blocks the event loop. A multiple of 4.
IMAGE_PIECE = 1 << 22

#: The forms of displays that become files.
_SAVED_TYPES = {**IMAGE_TYPES, **FILE_TYPES, **BASE64_TYPES}.keys()

#: The number of a display among the outputs, and suffix and text of a form.
_Form = tuple[int, str, str]


@dataclass
class SavedOutputs:
    """The outputs of a cell, whose displays name the files that they were saved in: see `ExecutionOutput`."""

    outputs: list[Stream | Display]
    images: list[Path] = field(default_factory=list[Path])
    image_data: list[bytes | None] = field(default_factory=list[bytes | None])
    files: list[Path] = field(default_factory=list[Path])
    notices: list[str] = field(default_factory=list[str])

    def add(self, number: int, path: Path) -> None:
        """Adds a file of a display."""
        display = cast(Display, self.outputs[number])
        self.outputs[number] = replace(display, files=(*display.files, path))


class DisplayDirectory:
    """The directory for the files of displays, which is created when the first one is saved.

    Args:
        path: Its path.
        untrusted_root: A directory that code can write: links there are not followed.
        workspace: If the directory lies in it, it is not created after the workspace was deleted.
    """

    def __init__(self, path: Path, untrusted_root: Path | None, workspace: Path | None):
        self._path = path
        self._untrusted_root = untrusted_root
        in_workspace = workspace and path.resolve().is_relative_to(workspace.resolve())
        self._base = workspace if in_workspace else None

    async def save(self, outputs: list[Stream | Display]) -> SavedOutputs:
        """Saves the displays among the outputs of one cell; notices report what was not saved."""
        for output in outputs:
            if isinstance(output, Display) and not _SAVED_TYPES.isdisjoint(output.data):
                return await asyncio.to_thread(
                    save_displays, outputs, self._path, untrusted_root=self._untrusted_root, base=self._base
                )
        return SavedOutputs(outputs)  # as after most cells


def save_displays(
    outputs: list[Stream | Display], path: Path, *, untrusted_root: Path | None = None, base: Path | None = None
) -> SavedOutputs:
    """Writes images and other forms of displays to new files in a directory; see `DisplayDirectory`.

    Git ignores a directory that is created in `base`.
    """
    saved, broken = SavedOutputs([*outputs]), 0
    displays = {number: output for number, output in enumerate(outputs) if isinstance(output, Display)}
    forms, omitted = _within_limits(displays)
    images = {number: image for number, display in displays.items() if (image := image_of(display)) is not None}
    if images or forms:
        makes = base is not None and not os.path.lexists(path)
        try:
            with open_directory(path, untrusted_root=untrusted_root, base=base) as directory:
                if makes:
                    directory.keep_out_of_git()
                broken = _save_images(images, directory, path, saved)
                _save_forms(forms, directory, path, saved)
        except OSError as exc:
            saved = SavedOutputs(outputs, notices=[f"What the cell displayed can't be saved in {path}: {exc}"])
    if broken := broken + sum(map(has_broken_image, displays.values())):
        saved.notices.insert(0, f"Images from {broken} displays were not saved because they are not valid base64.")
    if omitted:
        saved.notices.insert(
            0,
            f"{omitted} displays of HTML, SVG, LaTeX, JSON, GIF, WebP or PDF were not saved: the limit per "
            f"cell is {MAX_FILES} such files and {MAX_FILE_CHARS >> 20} Mi characters in total.",
        )
    return saved


def _within_limits(displays: Mapping[int, Display]) -> tuple[list[_Form], int]:
    """Returns the forms that become files, and how many do not because of the limits."""
    forms: list[_Form] = []
    room, count = MAX_FILE_CHARS, 0
    for number, display in displays.items():
        for suffix, text in files_of(display):
            count += 1
            if count <= MAX_FILES and len(text) <= room:
                room -= len(text)
                forms.append((number, suffix, text))
    return forms, count - len(forms)


def _save_images(images: Mapping[int, tuple[str, str]], directory: Directory, path: Path, saved: SavedOutputs) -> int:
    """Saves images, and returns how many are damaged."""
    room = MAX_IMAGE_DATA
    for number, (suffix, text) in images.items():
        if (data := _decoded(text)) is None:
            continue
        file = path / f"{uuid.uuid4().hex}{suffix}"
        directory.write_new(file.name, data)
        held = len(data) <= room
        room -= len(data) if held else 0
        saved.images.append(file)
        saved.image_data.append(data if held else None)
        saved.add(number, file)
    return len(images) - len(saved.images)


def _save_forms(forms: Sequence[_Form], directory: Directory, path: Path, saved: SavedOutputs) -> None:
    for number, suffix, text in forms:
        file = path / f"{secrets.token_hex(4)}{suffix}"
        data = _decoded(text) if suffix in BASE64_TYPES.values() else text.encode(errors="replace")
        if data is not None:
            directory.write_new(file.name, data)
            saved.files.append(file)
            saved.add(number, file)


def _decoded(image: str) -> bytes | None:
    data = bytearray()
    try:
        for start in range(0, len(image), IMAGE_PIECE):
            data += binascii.a2b_base64(image[start : start + IMAGE_PIECE])
    except ValueError:
        return None
    return bytes(data)
