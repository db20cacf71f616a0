"""Engines by name, from `engines.yaml` in the user's configuration directory.

    slurm:
      command: [srun, --ntasks=1, /shared/venv/bin/python, -P, -m, ipybox.node]
      env: [SLURM_CONF]

The file names programs to run on this machine, so it isn't read from a directory that code can write.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from ipybox.remote.application.slurm import WaitingJobs
from ipybox.support.state import config_dir
from ipybox.workspace.writable import WritablePlaces

#: Name of the file.
ENGINES_FILE = "engines.yaml"

#: Maximum bytes of the file.
MAX_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A command that runs `python -m ipybox.node` somewhere and connects its standard input and output.

    Messages refer to the engine by its name.
    """

    name: str
    command: Sequence[str]
    #: Names of environment variables that the command gets in addition to the usual ones.
    env: Sequence[str] = ()
    #: Its jobs in a scheduler's queue.
    waiting: WaitingJobs = field(default_factory=WaitingJobs, compare=False, repr=False)


def find_engine(engine: Sequence[str] | str, places: WritablePlaces) -> Engine:
    """Returns the engine with this name, or an engine for this command: a program and its arguments.

    Raises:
        TypeError: If it is neither.
        ValueError: If there is no such engine, or the file is invalid or writable by code.
    """
    if not isinstance(engine, str):
        parts: list[object] = list(engine)
        command = [part for part in parts if isinstance(part, str)]
        if not parts or command != parts:
            raise TypeError(f"engine must be a name, or a list of a program and its arguments, not {engine!r}")
        return Engine(name=f"the engine {os.path.basename(command[0])}", command=command)
    file = config_dir() / ENGINES_FILE
    if places.covers(file):
        raise ValueError(f"refusing to read {file} because code can write it: set XDG_CONFIG_HOME to another directory")
    engines = _read(file)
    if engine not in engines:
        known = f": it defines {', '.join(sorted(engines))}" if engines else ""
        raise ValueError(f"engine {engine!r} is not defined in {file}{known}")
    return engines[engine]


def _read(file: Path) -> dict[str, Engine]:
    import yaml
    from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

    class Entry(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        command: Annotated[list[str], Field(min_length=1)]
        env: list[str] = []

    try:
        with file.open("rb") as opened:
            content: Any = yaml.safe_load(opened.read(MAX_BYTES))
        entries = TypeAdapter(dict[str, Entry]).validate_python(content or {})
    except FileNotFoundError:
        raise ValueError(
            f"no engines are defined because {file} does not exist: see "
            "https://github.com/gradion-ai/ipybox/blob/main/docs/other-machines.md"
        ) from None
    except OSError as exc:
        raise ValueError(f"{file} can't be read: {exc.strerror}") from exc
    except yaml.YAMLError as exc:
        raise ValueError(f"{file} is not valid YAML: {exc}") from exc
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, error["loc"]))
        raise ValueError(f"{file}: {place}: {error['msg']}") from None
    return {
        name: Engine(name=f"the engine {name!r}", command=entry.command, env=entry.env)
        for name, entry in entries.items()
    }
