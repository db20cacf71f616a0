"""Queries as a model writes them, each with the tools that answer it, in two sets."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Half = Literal["tuning", "held out"]
HALVES: tuple[Half, ...] = ("tuning", "held out")

_FILES: dict[Half, Path] = {half: Path(__file__).with_name(f"{half.replace(' ', '_')}.tsv") for half in HALVES}


@dataclass(frozen=True)
class Judged:
    """A query, and the tools of which each answers it."""

    query: str
    answers: frozenset[str]


def judged(half: Half) -> list[Judged]:
    """Returns the queries of a half."""
    lines = (line.split("\t") for line in _FILES[half].read_text(encoding="utf-8").splitlines())
    return [Judged(query, frozenset(answers.split())) for query, answers in lines]
