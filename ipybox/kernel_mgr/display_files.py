"""Saves the images and other forms of displays as files, within limits, because code can display anything."""

import asyncio
import binascii
import os
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ipybox.kernel_mgr.display_forms import BASE64_TYPES, IMAGE_TYPES, files_of, has_broken_image, image_of
from ipybox.support.outputs import Display
from ipybox.support.safe_directory import Directory, open_directory

#: Maximum number of files per cell that are not images, and of their characters together.
MAX_FILES = 20
MAX_FILE_CHARS = 16 << 20

#: Bytes of the images of one cell that are also kept in memory.
MAX_IMAGE_DATA = 64 << 20

#: Images are decoded in pieces of this many characters, so that none blocks the event loop. A multiple of 4.
IMAGE_PIECE = 1 << 22


@dataclass(frozen=True)
class SavedFiles:
    """The files that were saved: see `ExecutionOutput`.

    Attributes:
        of: The paths of all files of a display, by the number of the display.
    """

    images: list[Path] = field(default_factory=list[Path])
    image_data: list[bytes | None] = field(default_factory=list[bytes | None])
    files: list[Path] = field(default_factory=list[Path])
    of: dict[int, tuple[Path, ...]] = field(default_factory=dict[int, tuple[Path, ...]])

    def add(self, number: int, path: Path) -> None:
        """Adds a file of a display."""
        self.of[number] = (*self.of.get(number, ()), path)


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

    async def save(self, displays: Sequence[Display]) -> tuple[SavedFiles, list[str]]:
        """Saves the displays of one cell, and returns the files, and notices about what was not saved."""
        files = DisplayFiles(displays)
        notices = files.notices()
        if files.empty:  # as after most cells; a thread takes 0.1 ms to start on it
            return SavedFiles(), notices
        try:
            saved = await asyncio.to_thread(
                files.save, self._path, untrusted_root=self._untrusted_root, base=self._base
            )
        except OSError as exc:
            return SavedFiles(), [*notices, f"What the cell displayed can't be saved in {self._path}: {exc}"]
        return saved, notices


class DisplayFiles:
    """The files of the displays of one cell, which `save` writes."""

    def __init__(self, displays: Sequence[Display]):
        self._displays = displays
        #: The number of a display, and suffix and text of its form.
        self._forms: list[tuple[int, str, str]] = []
        self._omitted = 0
        #: The number of displays with an image that is no base64.
        self._broken = sum(map(has_broken_image, displays))
        room, count = MAX_FILE_CHARS, 0
        for number, display in enumerate(displays):
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
        return not self._forms and all(IMAGE_TYPES.keys().isdisjoint(display.data) for display in self._displays)

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

    def save(self, directory: Path, *, untrusted_root: Path | None = None, base: Path | None = None) -> SavedFiles:
        """Writes the images and other forms to new files in `directory`, which is created if needed.

        `untrusted_root` is a directory that the cell can write: links there are not followed. If `base` does not exist,
        nothing is created (`open_directory`). Git ignores a directory that is created in `base`.
        """
        saved = SavedFiles()
        if self._forms or any(map(image_of, self._displays)):
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
        return saved

    def _save_images(self, opened: Directory, directory: Path, saved: SavedFiles) -> None:
        room = MAX_IMAGE_DATA
        for number, display in enumerate(self._displays):
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
