"""A socat that listens too late for srt, which gives it one second, as on a busy machine."""

import os
from pathlib import Path
from shutil import which

import pytest

#: The first time, or each time.
LATE_ONCE = "mkdir {place} 2>/dev/null && exec sleep 60"
LATE_ALWAYS = "case $1 in UNIX-LISTEN*) exec sleep 60;; esac"


def use_late_socat(when: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts such a socat on PATH, in a new directory `programs`; the first is noted in the directory `tried`."""
    programs = directory / "programs"
    programs.mkdir()
    program = programs / "socat"
    program.write_text(f'#!/bin/sh\n{when.format(place=directory / "tried")}\nexec {which("socat")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
