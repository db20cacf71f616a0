"""Saves the images and other forms of displays as files, within limits, because code can display anything."""

import asyncio
import binascii
import os
import secrets
import uuid
from collections.abc import Mapping
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
        displays = {
            number: output
            for number, output in enumerate(outputs)
            if isinstance(output, Display) and not _SAVED_TYPES.isdisjoint(output.data)
        }
        if not displays:  # as after most cells
            return SavedOutputs(outputs)
        files, saved = DisplayFiles(displays), SavedOutputs([*outputs])
        if not files.empty:  # a thread takes 0.1 ms to start
            try:
                await asyncio.to_thread(
                    files.save, saved, self._path, untrusted_root=self._untrusted_root, base=self._base
                )
            except OSError as exc:
                saved = SavedOutputs(
                    outputs, notices=[f"What the cell displayed can't be saved in {self._path}: {exc}"]
                )
        saved.notices[:0] = files.notices()
        return saved


class DisplayFiles:
    """The files of the displays of one cell, which `save` writes.

    Args:
        displays: The displays, by their numbers among the outputs.
    """

    def __init__(self, displays: Mapping[int, Display]):
        self._displays = displays
        #: The number of a display, and suffix and text of its form.
        self._forms: list[tuple[int, str, str]] = []
        self._omitted = 0
        #: The number of displays with an image that is no base64.
        self._broken = sum(map(has_broken_image, displays.values()))
        room, count = MAX_FILE_CHARS, 0
        for number, display in displays.items():
            for suffix, text in files_of(display):
                count += 1
                if count <= MAX_FILES and len(text) <= room:
                    room -= len(text)
                    self._forms.append((number, suffix, text))
                else:
                    self._omitted += 1

    @property
    def empty(self) -> bool:
        """Whether no display has a form that could be saved."""
        return not (self._forms or any(map(image_of, self._displays.values())))

    def notices(self) -> list[str]:
        """Returns a sentence about forms beyond the limits, and one about images that could not be decoded."""
        notices: list[str] = []
        if self._omitted:
            notices.append(
                f"{self._omitted} displays of HTML, SVG, LaTeX, JSON, GIF, WebP or PDF were not saved: the limit per "
                f"cell is {MAX_FILES} such files and {MAX_FILE_CHARS >> 20} Mi characters in total."
            )
        if self._broken:
            notices.append(f"Images from {self._broken} displays were not saved because they are not valid base64.")
        return notices

    def save(
        self, saved: SavedOutputs, directory: Path, *, untrusted_root: Path | None = None, base: Path | None = None
    ) -> None:
        """Writes the images and other forms to new files in `directory`, and adds these to `saved`.

        The directory is created if needed. `untrusted_root` is a directory that the cell can write: links there are not
        followed. If `base` does not exist, nothing is created (`open_directory`). Git ignores a directory that is
        created in `base`.
        """
        makes = base is not None and not os.path.lexists(directory)
        with open_directory(directory, untrusted_root=untrusted_root, base=base) as opened:
            if makes:
                opened.keep_out_of_git()
            self._save_images(opened, directory, saved)
            for number, suffix, text in self._forms:
                path = directory / f"{secrets.token_hex(4)}{suffix}"
                data = _decoded(text) if suffix in BASE64_TYPES.values() else text.encode(errors="replace")
                if data is None:
                    continue
                opened.write_new(path.name, data)
                saved.files.append(path)
                saved.add(number, path)

    def _save_images(self, opened: Directory, directory: Path, saved: SavedOutputs) -> None:
        room = MAX_IMAGE_DATA
        for number, display in self._displays.items():
            image = image_of(display)
            if image is None:
                continue
            data = _decoded(image[1])
            if data is None:
                self._broken += 1
            else:
                path = directory / f"{uuid.uuid4().hex}{image[0]}"
                opened.write_new(path.name, data)
                held = len(data) <= room
                room -= len(data) if held else 0
                saved.images.append(path)
                saved.image_data.append(data if held else None)
                saved.add(number, path)


def _decoded(image: str) -> bytes | None:
    data = bytearray()
    try:
        for start in range(0, len(image), IMAGE_PIECE):
            data += binascii.a2b_base64(image[start : start + IMAGE_PIECE])
    except ValueError:
        return None
    return bytes(data)
