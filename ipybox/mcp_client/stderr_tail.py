"""Reads what a stdio server and its launcher write to stderr, such as the download progress of npx and uvx."""

import re

from ipybox.mcp_client import process_guard
from ipybox.support.child import StderrLines
from ipybox.support.printable import printable

#: Variables that make npm report each of its requests. Otherwise it reports a failed request only after its last
#: attempt, later than any client waits.
NPM_VARIABLES = {"npm_config_loglevel": "http"}

#: Maximum lines of stderr in an error.
STDERR_LINES = 10

_FETCHED = re.compile(r"npm http (?:fetch|cache) (?:GET |POST )?(?:[23]\d\d )?(?:\S+@)?(?P<url>\w+://\S+) .*\d+ms\b.*")
_UV = re.compile(r"(?:Downloading|Downloaded|Building|Built|Installed|Prepared|Resolved|Updating|Updated) \S.*")

# Frames in tracebacks of Node and Python (with bars before them in exception groups), and the source below a frame.
_NODE_FRAME = re.compile(
    r"\s+(?:at .*(?::\d+:\d+\)?|<anonymous>\)?)(?: \{)?|\.{3} \d+ lines matching cause stack trace \.{3})"
)
_PYTHON_FRAME = re.compile(r"[ |]*  File \".*\", line \d+")
_PYTHON_SOURCE = re.compile(r"(?:[ |]*\|)?+ {4}")

# As `StderrLines` delivers it.
_REPORT = printable(process_guard.REPORT)


class ServerStderr(StderrLines):
    """Keeps the lines that explain a server's failure, without traceback frames and downloads; `log` gets all lines."""

    #: How the server ended ("exited with code 3"), if the guard has said so.
    report: str | None = None
    _in_frame = False

    def _receive(self, line: str) -> None:
        line = line.rstrip()
        if line.startswith(_REPORT):
            self.report = line.removeprefix(_REPORT)
        elif line:
            self.log(line)
            if not is_progress(line) and not self._is_frame(line):
                self._lines.append(line)

    def _is_frame(self, line: str) -> bool:
        """Returns whether a line is part of a traceback frame; frames would leave no room for the error itself."""
        is_source = self._in_frame and _PYTHON_SOURCE.match(line) is not None
        self._in_frame = is_source or _PYTHON_FRAME.match(line) is not None
        return self._in_frame or _NODE_FRAME.fullmatch(line) is not None


def is_progress(line: str) -> bool:
    """Returns whether a line reports successful work, which explains no failure."""
    return _FETCHED.fullmatch(line) is not None or _UV.fullmatch(line.strip()) is not None


def readable_line(line: str) -> str:
    """Returns a line of progress as a person should see it; other lines are returned unchanged."""
    if (match := _FETCHED.fullmatch(line)) is None:
        return line
    name = match["url"].partition("://")[2].partition("/")[2] or match["url"]
    return f"downloading {name.rpartition('/')[2]}" if name.endswith(".tgz") else f"looking up {name}"
