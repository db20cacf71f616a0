"""The `.env` file of a workspace: values of `${VAR}` placeholders and of the kernel's variables, and nothing else.

A cloned repository may contain it, and code may have written it. Therefore, it does not become part of the host's
environment, which chooses the state directory, the browser, proxies and certificates; and it can't read that
environment.
"""

import logging
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

from dotenv import dotenv_values
from dotenv.variables import parse_variables

from ipybox.support.safe_directory import open_directory

logger = logging.getLogger(__name__)

NAME = ".env"

#: Bytes of the largest file that is read.
MAX_BYTES = 1 << 20


def read_env_file(workspace: Path) -> dict[str, str]:
    """Returns the variables of a workspace's `.env` file; `${NAME}` in a value stands for another one of the file.

    A file that can't be read, is larger than `MAX_BYTES`, or is a link or a pipe, is ignored with a warning in the log.
    """
    try:
        with open_directory(workspace, create=False) as directory:
            content = directory.read(NAME, MAX_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as exc:
        logger.warning("%s is not read: %s", workspace / NAME, exc.strerror or exc)
        return {}
    values = dotenv_values(stream=StringIO(content.decode(errors="replace")), interpolate=False)
    return _expanded({name: value for name, value in values.items() if value is not None and "\0" not in value})


def _expanded(values: Mapping[str, str]) -> dict[str, str]:
    # python-dotenv itself would also use values of the host's environment.
    expanded: dict[str, str] = {}
    for name, value in values.items():
        expanded[name] = "".join(atom.resolve(expanded) for atom in parse_variables(value))
    return expanded
