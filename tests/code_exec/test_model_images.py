import base64
import io
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from ipybox.code_exec import model_output as pictures_module
from ipybox.code_exec.model_output import MAX_BYTES, MAX_MODEL_IMAGES, MAX_SIDE, ModelImage, model_images


def encoded(picture: Image.Image, form: str = "PNG") -> bytes:
    file = io.BytesIO()
    picture.save(file, form)
    return file.getvalue()


def noise(width: int, height: int) -> Image.Image:
    return Image.frombytes("RGB", (width, height), os.urandom(3 * width * height))


def decoded(picture: ModelImage) -> Image.Image:
    assert isinstance(picture, dict), picture
    data = base64.b64decode(picture["data"])
    assert len(data) <= MAX_BYTES
    image = Image.open(io.BytesIO(data))
    assert Image.MIME[image.format or ""] == picture["mimeType"]
    image.load()
    return image


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_image_that_models_take_stays_as_it_is(form: str):
    data = encoded(noise(64, 48), form)

    text = base64.b64encode(data).decode()
    assert model_images([data]) == [{"type": "image", "data": text, "mimeType": f"image/{form.lower()}"}]


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "I;16"])
def test_large_image_is_scaled_down_with_its_proportions(mode: str):
    (picture,) = model_images([encoded(Image.new(mode, (3000, 1000)))])

    assert decoded(picture).size == (MAX_SIDE, 523)


@pytest.mark.parametrize(("side", "hard"), [(800, False), (1600, False), (MAX_SIDE, True)])
def test_image_of_many_bytes_gets_fewer(side: int, hard: bool):
    image = noise(side, side)
    if hard:  # as JPEG
        image = image.point([(0, 50, 205, 255)[value >> 6] for value in range(256)] * 3)
    data = encoded(image)
    assert len(data) > MAX_BYTES

    (picture,) = model_images([data])
    assert max(decoded(picture).size) <= (MAX_SIDE // 2 if hard else MAX_SIDE)


def test_transparent_background_becomes_white_in_a_format_without():
    data = noise(800, 800).convert("RGBA")
    data.paste((0, 0, 0, 0), (0, 0, 100, 100))

    image = decoded(model_images([encoded(data)])[0])
    assert image.format == "JPEG"
    assert image.convert("L").crop((10, 10, 80, 80)).getextrema() == (255, 255)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(lambda: b"", id="nothing"),
        pytest.param(lambda: b"#!/bin/sh", id="a_script"),
        pytest.param(lambda: encoded(noise(300, 300))[:50_000], id="half_an_image"),
        pytest.param(lambda: encoded(Image.new("RGB", (300, 300)), "GIF"), id="another_format"),
        pytest.param(lambda: encoded(Image.new("1", (20_000, 20_000))), id="a_bomb"),
        pytest.param(lambda: None, id="not_held"),
    ],
)
def test_what_can_not_be_shown_is_said(data: Callable[[], bytes | None]):
    (reason,) = model_images([data()])

    assert isinstance(reason, str)
    assert "too large" in reason


def test_there_are_so_many_pictures_and_no_more():
    shown = model_images([encoded(Image.new("RGB", (8, 8)))] * (MAX_MODEL_IMAGES + 2))

    assert [isinstance(picture, dict) for picture in shown] == [True] * MAX_MODEL_IMAGES + [False] * 2
    assert shown[-1] == f"more than {MAX_MODEL_IMAGES}"


def test_a_process_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = tmp_path / "image_worker.py"
    script.write_text("import threading; threading.Event().wait()")
    monkeypatch.setattr(pictures_module, "_WORKER", script)
    monkeypatch.setattr(pictures_module, "TIMEOUT", 0.2)

    assert model_images([b""]) == ["it can't be checked"]


def test_slow_pictures_share_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = tmp_path / "image_worker.py"
    script.write_text("import threading; threading.Event().wait()")
    monkeypatch.setattr(pictures_module, "_WORKER", script)
    monkeypatch.setattr(pictures_module, "TIMEOUT", 0.5)
    started = time.monotonic()

    assert model_images([b""] * 8) == ["it can't be checked"] * 8
    assert time.monotonic() - started < 3
