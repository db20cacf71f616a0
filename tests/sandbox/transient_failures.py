"""Programs that make srt fail as it does now and then, put in front of the real ones on PATH."""

import os
from pathlib import Path
from shutil import which

import pytest

#: When socat listens too late for srt, which gives it one second: the first time, or each time.
LATE_ONCE = "mkdir {place} 2>/dev/null && exec sleep 60"
LATE_ALWAYS = "case $1 in UNIX-LISTEN*) exec sleep 60;; esac"


def use_late_socat(when: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the machine so busy that socat listens too late; the first time is noted in the directory `tried`."""
    put_in_front("socat", when.format(place=directory / "tried"), directory, monkeypatch)


def remove_before_mounting(file: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes a file when srt has found it, and bubblewrap has not mounted it yet."""
    put_in_front("bwrap", f"case $* in *{file}*) rm -f {file};; esac", directory, monkeypatch)


def put_in_front(name: str, script: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a script run before a program; it lies in a new directory `programs`."""
    programs = directory / "programs"
    programs.mkdir()
    program = programs / name
    program.write_text(f'#!/bin/sh\n{script}\nexec {which(name)} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
