"""The generators that are compared, and the interpreters that try what they made."""

import json
import logging
import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.codegen.corpora import Corpus
from benchmarks.subject import SubjectError, environment
from ipybox.mcp_apigen.package.files import render_package
from ipybox.mcp_apigen.render.naming import module_names
from tests.written_packages import write_package

_SUBJECTS = Path(__file__).parent / "subjects"
#: Seconds after which a process counts as hung.
_LIMIT = 1800.0

_IDENTIFY = "import importlib.metadata; print(importlib.metadata.version('datamodel-code-generator'))"


class Generator(ABC):
    """Generates packages in `root/mcptools`.

    Attributes:
        python: An interpreter that can import them.
        root: Where they are.
        errors: Why the last generation left modules out, by their names.
        warnings: What else it said.
    """

    def __init__(self, python: str, root: Path):
        self.python = python
        self.root = root
        self.errors: dict[str, str] = {}
        self.warnings: list[str] = []

    @abstractmethod
    def generate(self, package: str, corpus: Corpus) -> list[float]:
        """Generates a package and returns the seconds that it took, as the only element."""


class Ours(Generator):
    """`ipybox.mcp_apigen`, in this process."""

    def __init__(self, root: Path):
        super().__init__(sys.executable, root)
        logging.getLogger("ipybox.mcp_apigen").addHandler(_Notes(self.warnings))

    def generate(self, package: str, corpus: Corpus) -> list[float]:
        """Renders and writes a package."""
        self.warnings.clear()
        place = self.root / "mcptools" / package
        shutil.rmtree(place, ignore_errors=True)  # otherwise existing files might not be written again
        began = time.perf_counter()
        files = render_package(package, {"command": "server"}, corpus.tools, "seal")
        write_package(place, files)
        return [time.perf_counter() - began]


class Peer(Generator):
    """datamodel-code-generator, in the way of the earlier ipybox.

    Attributes:
        version: Of datamodel-code-generator.

    Raises:
        SubjectError: The interpreter does not have it.
    """

    def __init__(self, python: str, root: Path):
        super().__init__(python, root)
        found = _run(python, ["-c", _IDENTIFY])
        if found.returncode != 0:
            raise SubjectError(f"{python} has no datamodel-code-generator")
        self.version = found.stdout.decode().strip()

    def generate(self, package: str, corpus: Corpus) -> list[float]:
        """Generates a package tool by tool, in a process of which only this is timed."""
        tools = [
            {"module": module, "name": tool.name, "description": tool.description}
            | {"input": tool.input_schema, "output": tool.output_schema}
            for tool, module in zip(corpus.tools, modules_of(corpus), strict=True)
        ]
        answer = ask(self.python, "peer.py", {"root": str(self.root), "package": package, "tools": tools})
        self.errors = answer["errors"]
        return [answer["seconds"]]


def modules_of(corpus: Corpus) -> list[str]:
    """The names of the tools' modules, on either side."""
    return module_names([tool.name for tool in corpus.tools], {})


def ask(python: str, script: str, request: Mapping[str, Any]) -> Any:
    """Has a script of `subjects/` do something, and returns its answer.

    Raises:
        SubjectError: It failed; the message has its last words.
    """
    done = _run(python, ["-P", str(_SUBJECTS / script)], json.dumps(request).encode())
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").splitlines()[-20:]
        raise SubjectError("\n".join([f"{python} {script} failed:", *words]))
    return json.loads(done.stdout.splitlines()[-1])


def _run(python: str, arguments: list[str], request: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command, variables = [python, *arguments], environment(python)
    try:
        return subprocess.run(command, input=request, env=variables, capture_output=True, check=False, timeout=_LIMIT)
    except OSError as exc:
        raise SubjectError(f"{python} is no interpreter: {exc.strerror}") from exc
    except subprocess.TimeoutExpired as exc:
        raise SubjectError(f"{python} gave no answer in {_LIMIT:g} s") from exc


class _Notes(logging.Handler):
    def __init__(self, texts: list[str]):
        super().__init__(logging.WARNING)
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())
