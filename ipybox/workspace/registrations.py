"""The application's own record of a generated package: hashes of its manifest and inputs, its seal, and its tools.

Code in a kernel can change the package or restore an earlier one, but can't write the user's state directory. So only
the last registration in one place under one name is trusted. The file is also the lock for generating the package. Its
first line contains the hashes and the seal, and can be read without the lock; the second contains the modules, and the
third what the server said about its tools and which of them a person lets run without asking, both as JSON.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice, starmap
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, cast

from ipybox.support.state import make_directory, state_dir

#: Maximum number of modules in a record. The oldest are dropped.
MAX_MODULES = 20_000

_MAX_LINE = 1024

#: Tool hints, by their names in MCP. https://modelcontextprotocol.io/specification/2025-11-25/schema#toolannotations
HINTS: Final[Mapping[str, str]] = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}
#: The hints that apply to a tool that declares none.
UNDECLARED: Final = ("destructive", "open_world")
#: The keywords of a schema that may permit names beside its `properties`.
_MORE_NAMES: Final = {
    *("patternProperties", "unevaluatedProperties", "dependentSchemas", "dependencies", "if", "then", "else"),
    *("allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "$recursiveRef"),
}


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as an MCP server or the application defines it."""

    name: str
    description: str | None
    input_schema: Any
    #: None if results are text.
    output_schema: Any = None
    #: The values of `HINTS` that apply to it, including MCP's defaults; none for a function of the application.
    hints: tuple[str, ...] = ()
    #: A hash of its server's parameters without secrets; empty unless placeholders choose some of them.
    chosen: str = ""

    @property
    def parameters(self) -> list[str] | None:
        """The names of its parameters; None if its schema may permit others."""
        given: Any = self.input_schema
        schema = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        names: Any = schema.get("properties")
        if not isinstance(names, dict) or schema.get("additionalProperties", False) is not False:
            return None
        return None if _MORE_NAMES & schema.keys() else [*cast("dict[str, Any]", names)]


class PinnedTool(NamedTuple):
    """A tool as its server defined it when it was registered."""

    #: A hash of its definition, including the hints; empty if it has none.
    digest: str
    #: The values of `HINTS` that apply to it: the server's own word.
    hints: Iterable[str] = UNDECLARED
    #: Whether a person lets it run without asking; None if nobody has decided on this definition.
    unasked: bool | None = None
    #: The names of its parameters, if known.
    parameters: Collection[str] | None = None

    @property
    def may_write(self) -> bool:
        """Whether its server doesn't claim that it only reads."""
        return "read_only" not in self.hints


class Registration:
    """The record of one package; it can be written while its lock is held.

    Attributes:
        line: The first line, which differs if anything else in the record does.
        origin: The hash of the package's inputs; may be empty.
        seal: The MAC of the only valid seal of the server's parameters.
        place: The path of the package.
        modules: The tool of each current or former module of the package, by module name.
        launch: How the server is started or reached, for people, without secrets.
        tools: The server's tools.
    """

    def __init__(self, file: Path, data: bytes, fd: int = -1):
        self._file, self._fd = file, fd
        lines = [*data.split(b"\n"), b"", b""]
        self.line = lines[0]
        self._manifest, self.origin, self.seal, digest = _fields(self.line)
        self.modules: dict[str, str] = _mapping(lines[1])
        if (intact := digest == hashlib.sha256(lines[2]).hexdigest()) is False:
            self.origin = ""
        pins = _mapping(lines[2]) if intact else {}
        self.place, self.launch = Path(pins.get("place", "")), str(pins.get("launch", ""))
        tools: dict[str, list[Any]] = pins.get("tools", {})
        self.tools = dict(zip(tools, starmap(PinnedTool, tools.values()), strict=True))

    @classmethod
    def read(cls, file: Path) -> Self:
        """Reads a `record_file` without the lock; a missing or partly written one contains no tools."""
        data = b""
        with suppress(FileNotFoundError):
            data = file.read_bytes()
        return cls(file, data)

    @property
    def reading(self) -> list[str]:
        """The tools that only read, according to the server."""
        return [name for name, tool in self.tools.items() if not tool.may_write]

    @property
    def offline(self) -> list[str]:
        """The tools that only read and don't reach the internet: these can't carry data out."""
        return [name for name in self.reading if "open_world" not in self.tools[name].hints]

    @property
    def unasked(self) -> list[str]:
        """The tools that a person lets run without asking."""
        return [name for name, tool in self.tools.items() if tool.unasked]

    @property
    def undecided(self) -> bool:
        """Whether a person has yet to decide on a tool that only reads."""
        return any(self.tools[name].unasked is None for name in self.reading)

    @property
    def split(self) -> str:
        """How many tools only read, and how many of those reach the internet, according to the server."""
        away = len(self.reading) - len(self.offline)
        beyond = f", {away} of them {'reaches' if away == 1 else 'reach'} the internet" if away else ""
        return f"{len(self.reading)} of {len(self.tools)} tools only read{beyond}"

    def matches(self, manifest: bytes) -> bool:
        """Returns whether this is the manifest of the last registration."""
        return self._manifest == hashlib.sha256(manifest).hexdigest()

    def write(
        self,
        manifest: bytes,
        origin: str,
        seal: str,
        modules: Mapping[str, str],
        tools: Mapping[str, PinnedTool] | None = None,
        launch: str = "",
    ) -> None:
        """Records the manifest, the hash of the package's inputs, the seal, which replaces any earlier one, and tools.

        Keeps former modules: a module name stays reserved for its tool, even if the server removes the tool. Keeps a
        person's decision on a tool only if neither the tool nor the seal has changed.
        """
        for name in modules:
            self.modules.pop(name, None)  # so that it becomes the newest
        known = {**self.modules, **modules}
        self.modules = dict(islice(known.items(), max(0, len(known) - MAX_MODULES), None))
        mac = seal.rpartition(":")[2]
        before, self.tools = self.tools if mac == self.seal else {}, dict(tools or {})
        for name, tool in self.tools.items():
            if name in before and before[name].digest == tool.digest:
                self.tools[name] = tool._replace(unasked=before[name].unasked)
        self._manifest, self.origin, self.seal = hashlib.sha256(manifest).hexdigest(), origin, mac
        self.launch = launch
        self._save()

    def agree(self, unasked: Collection[str] | None) -> "Registration":
        """Records a person's decision: which tools run without asking, or None to revoke all decisions.

        Returns the record as it is now. If the server was registered again since this one was read, the decision
        applies only to tools that haven't changed, and to none if the parameters have changed.
        """
        with locked_registration(self._file) as now:
            for name, tool in now.tools.items():
                seen = self.tools.get(name)
                if now.seal == self.seal and tool.digest and seen is not None and seen.digest == tool.digest:
                    now.tools[name] = tool._replace(unasked=None if unasked is None else name in unasked)
            if now.tools:
                now._save()
            return now

    def _save(self) -> None:
        pins = json.dumps({"place": str(self.place), "launch": self.launch, "tools": self.tools}).encode()
        fields = self._manifest, self.origin, self.seal, hashlib.sha256(pins).hexdigest()
        self.line = " ".join(fields).encode()
        data = b"\n".join([self.line, json.dumps(self.modules).encode(), pins, b""])
        os.pwrite(self._fd, data, 0)  # before truncating, so that no reader finds it empty
        os.truncate(self._fd, len(data))


@contextmanager
def locked_registration(file: Path) -> Generator[Registration]:
    """Waits for the lock on a `record_file`, and opens it; creates the file if needed."""
    make_directory(file.parent)
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield Registration(file, os.pread(fd, os.fstat(fd).st_size, 0), fd)
    finally:
        os.close(fd)


def registrations(directory: Path) -> dict[str, Registration]:
    """Returns the records of the servers in a directory of packages, by name, even if their packages are gone.

    `directory` is a path without links.
    """
    records = map(Registration.read, sorted((state_dir() / "packages").glob("*")))
    return {each.place.name: each for each in records if each.tools and each.place.parent == directory}


def first_line(file: Path) -> bytes:
    """Returns the first line of a `record_file`, without locking; empty if there is none."""
    try:
        with file.open("rb", buffering=0) as record:
            return record.read(_MAX_LINE).partition(b"\n")[0]
    except FileNotFoundError:
        return b""


def current_seal(file: Path) -> str:
    """Returns the seal of the last registration in a `record_file`, without locking; empty if there is none."""
    return seal_in(first_line(file))


def seal_in(line: bytes) -> str:
    """Returns the seal in the first line of a record; empty if there is none."""
    return _fields(line)[2]


def record_file(place: Path) -> Path:
    """Returns the path of a package's record. `place` is the package's path without links."""
    return state_dir() / "packages" / hashlib.sha256(os.fsencode(place)).hexdigest()


def _fields(line: bytes) -> list[str]:
    return [*line.decode(errors="replace").split(" ", 3), "", "", ""][:4]


def _mapping(line: bytes) -> dict[str, Any]:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}  # the write was interrupted
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
