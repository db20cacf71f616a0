"""Tool calls as people see them before they decide: all of a call in few lines, or where all of it is.

Claude Code 2.1.332 shows four lines of a message, or three of a longer one, each cut at the terminal's width; no key
shows the rest. So all arguments go into those lines. If they don't fit, the first line says so, the others show
truncated arguments, and further lines are for clients that show more.
"""

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from ipybox.audit.redaction import Redactor
from ipybox.guest.tools.protocol import SHELL_MAGIC_TOOL
from ipybox.support.printable import printable, unmistakable
from ipybox.tool_exec.approval.conditions import ToolCall
from ipybox.tool_exec.approval.request import ApprovalRequest, RequestKind

#: The part of a message that every client shows: columns (in a terminal of 80), lines, and lines if there are more.
COLUMNS = 74
LINES = 4
LINES_OF_MORE = 3

#: In these lines: maximum columns of a name, minimum columns of an argument, and how many arguments from either end are
#: shown if there is no room for all.
MAX_NAME = 30
MIN_PIECE = 8
MANY = 4
#: The same for several calls, each of which is shown like an argument.
MIN_ROW = 24
MANY_ROWS = 2
#: The part of several calls that must send the same value of an argument, for others to be exceptions.
MAJORITY = 0.8
MAX_NAMES, MAX_DEPTH, MAX_MEMBERS = 1000, 4, 40

#: Limits of the further lines: characters per line, and number of lines.
MAX_LINE = 600
MAX_LINES = 60

#: The prefix of each line that is not ipybox's own.
BAR = "| "

_ELLIPSIS = "…"


class ShownCall:
    """Calls of one tool as people see them, with known secrets shortened and control characters escaped.

    Arguments that all calls share are shown first, and once.
    """

    def __init__(self, calls: Sequence[ToolCall], kind: RequestKind, redactor: Redactor):
        self._redactor = redactor
        call = calls[0]
        self._knows = call.lists
        arguments, self._rows = _split([each.arguments for each in calls])
        # Unknown ones are in the middle, because the ends are always shown.
        known = [name for name in arguments if self._knows(name)]
        half = (len(known) + 1) // 2
        order = [*known[:half], *(name for name in arguments if not self._knows(name)), *known[half:]]
        self._arguments = {name: arguments[name] for name in order}
        times = f" {len(calls):,} times" if len(calls) > 1 else ""
        self._command: str | None = self._arguments.pop("cmd") if kind == "shell" else None
        names = [ascii_name(each) for each in (call.server, call.tool)]
        self._title = f"Code calls {'.'.join(names)}{times}"
        short = ".".join(cut_columns(each, MAX_NAME) for each in names)
        self._head = f"Code calls {short}{times and f'{times} '}("
        if kind == "shell":
            self._title = f"Code runs a shell {'script' if call.tool == SHELL_MAGIC_TOOL else 'command'}"
            self._head = f"{self._title} ("

    @cached_property
    def brief(self) -> list[str] | None:
        """The lines that every client shows, or None if the calls do not fit."""
        if len(self._arguments) + len(self._rows) > COLUMNS * LINES:
            return None
        arguments = [f"{self._name(name)}: {self._json(value, COLUMNS)}" for name, value in self._arguments.items()]
        command = [] if self._command is None else [self._text(line) for line in _lines(self._command, LINES)]
        rows = [self._row(number) for number in range(len(self._rows))]
        lines = [self._title, *(f"{BAR}{line}" for line in [*command, *arguments, *rows] or ["without arguments"])]
        if _fit(lines):
            return lines
        lines = wrapped(f"{self._head}{', '.join(self._pieces(COLUMNS * LINES))})", LINES, words=True)
        return lines if _fit(lines) else None

    def shortened(self, file: Path | None) -> list[str]:
        """Returns the lines of a call that does not fit; the first ones, which every client shows, name the file."""
        notice = wrapped("Shortened" if file is None else f"Shortened. Full text: {home_path(file)}", LINES_OF_MORE - 1)
        left = LINES_OF_MORE - len(notice)
        # Minus the bracket, and a column per line that a wide character may leave empty at the end.
        room = left * (COLUMNS - len(BAR) - 1) - _columns(self._head) - 1
        pieces = self._pieces(room)
        least, many = (MIN_ROW, MANY_ROWS) if self._rows else (MIN_PIECE, MANY)
        found: list[str] = []
        if len(pieces) * least > room and len(pieces) > 2 * many:
            many = 1 if self._exceptions else many
            pieces = [*pieces[:many], f"+{len(pieces) - 2 * many:,} more", *pieces[-many:]]
            found = [f"{count:,}× {text}" for count, text in self._exceptions[:MANY_ROWS]]
            if (more := len(self._exceptions) - MANY_ROWS) > 0:
                found.append(f"+{more:,} other{'s' * (more > 1)}")
            found = _cut_to_fit(found, room // 2)
        pieces = [*found, *_cut_to_fit(pieces, room - sum(_columns(piece) + len(", ") for piece in found))]
        call = wrapped(f"{self._head}{', '.join(pieces)})", left)
        listing, half = _lines(self._listing, MAX_LINES), MAX_LINES // 2
        if (missing := self._listing.count("\n") - MAX_LINES) > 0:
            last = self._listing.removesuffix("\n").rsplit("\n", half)[1:]
            listing = [*listing[:half], f"  [... {missing} lines not shown ...]", *last]
        return [*notice, *call[:left], *(printable(_cut(line)) for line in listing)]  # unlike the file, without tabs

    def whole(self) -> str:
        """Returns all of the calls."""
        return f"{self._title}\n{self._listing}"

    def _pieces(self, most: int) -> list[str]:
        pieces = [f"{self._name(name)}={self._json(value, most)}" for name, value in self._arguments.items()]
        pieces += [_cut(self._row(number, "="), 4 * most) for number in range(len(self._rows))]
        return pieces if self._command is None else [self._json(self._command, most), *pieces]

    def _row(self, number: int, equals: str = ": ") -> str:
        row = [f"{self._name(name)}{equals}{_dumped(value)}" for name, value in self._rows[number].items()]
        return self._text(f"#{number + 1:,} {', '.join(row)}".rstrip())

    def _name(self, name: str, *inner: str | int) -> str:
        """Returns the name of an argument, or of a part of it."""
        shown = quoted_name(".".join(map(str, (name, *inner))))
        return shown if self._knows(name) else f"{shown} (unknown)"

    def _json(self, value: object, most: int) -> str:
        return unmistakable(_cut(self._redactor.known_tokens(_dumped(value)), 4 * most))

    @cached_property
    def _listing(self) -> str:
        lines = [] if self._command is None else [self._barred(self._command)]
        for name, value in self._arguments.items():
            if isinstance(value, str) and "\n" in value:
                lines += [f"  {self._name(name)}:", self._barred(value)]
            else:
                lines.append(f"  {self._name(name)}: {self._text(_dumped(value))}")
        lines += [f"  in {count:,} of the calls: {text}" for count, text in self._exceptions[:MAX_LINES]]
        lines += [f"  {more:,} more exceptions"] if (more := len(self._exceptions) - MAX_LINES) > 0 else []
        lines += [f"  {self._row(number)}" for number in range(len(self._rows))]
        return "\n".join([*lines, ""])

    def _barred(self, text: str) -> str:
        # Not as a list: each of millions of lines would take a hundred bytes.
        text = unmistakable(self._redactor.known_tokens(text), lines=True).removesuffix("\n")
        return f"  {BAR}{text}".replace("\n", f"\n  {BAR}")

    @cached_property
    def _exceptions(self) -> list[tuple[int, str]]:
        """What few calls send while most send the same, with their number: it is hard to find among thousands.

        Known arguments of all calls are first, so that others can't hide what they send.
        """
        counts: dict[_Path, Counter[int]] = {}
        for row in self._rows:
            for path, text in _leaves(row):
                counts.setdefault(path, Counter())[hash(text)] += 1
            if len(counts) > MAX_NAMES:
                return [(len(self._rows), f"more than {MAX_NAMES:,} argument names")]
        odd: dict[_Path, tuple[int, int, int | None, str]] = {}
        for path, values in counts.items():
            absent = len(self._rows) - values.total()
            usual, most = values.most_common(1)[0]
            usual = usual if most >= absent else None
            if 0 < (few := len(self._rows) - max(most, absent)) <= len(self._rows) * (1 - MAJORITY):
                kinds = len(values) - (usual is not None) + (0 < absent < most)
                odd[path] = absent, few, usual, " or others" * (kinds > 1)
        texts: dict[_Path, str] = {}
        usuals: dict[_Path, str] = {}
        for row in self._rows if odd else ():
            for path, text in _leaves(row):
                if path in odd:
                    (usuals if hash(text) == odd[path][2] else texts).setdefault(path, text)
        found: list[tuple[bool, int, int, str]] = []
        for path, (absent, few, _, others) in odd.items():
            text, usual = (self._redactor.known_tokens(each.get(path, "")) for each in (texts, usuals))
            shown = f"{self._name(*path)}={_cut(_from_difference(text, usual))}" if text else f"no {self._name(*path)}"
            found.append((not self._knows(path[0]), absent, few, unmistakable(shown + others)))
        return [(count, text) for *_, count, text in sorted(found)]

    def _text(self, text: str) -> str:
        return unmistakable(self._redactor.known_tokens(text))


def whole_call(request: ApprovalRequest, redactor: Redactor) -> str:
    """Returns all of the calls that a request is about."""
    calls = [ToolCall(request.server_name, request.tool_name, call, (), request.pinned) for call in request.calls]
    return ShownCall(calls, request.kind, redactor).whole()


def _split(calls: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], Sequence[Mapping[str, Any]]]:
    """Returns the arguments that all calls share, and the others of each call; no others if the calls are equal."""
    if len(calls) == 1:
        return dict(calls[0]), []
    texts = [{name: _dumped(value) for name, value in call.items()} for call in calls]
    # Of equal JSON texts, unlike Python's values: 1 equals neither 1.0 nor True.
    shared = {name for name, text in texts[0].items() if all(each.get(name) == text for each in texts)}
    rows = [{name: value for name, value in call.items() if name not in shared} for call in calls]
    return {name: calls[0][name] for name in calls[0] if name in shared}, rows if any(rows) else []


#: The name of an argument, and of the member or item in it, and so on.
_Path = tuple[Any, ...]


def _leaves(value: object, path: _Path = ()) -> Iterator[tuple[_Path, str]]:
    """Yields the path and the JSON of each argument, and of members of objects and items of short lists."""
    members: Mapping[Any, object] = {}
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
    elif isinstance(value, list) and len(items := cast("list[object]", value)) <= MANY:
        members = dict(enumerate(items))
    if not path or (len(path) <= MAX_DEPTH and 0 < len(members) <= MAX_MEMBERS):
        for name, inner in members.items():
            yield from _leaves(inner, (*path, name))
    else:
        yield path, _dumped(cast(object, value))


def _from_difference(text: str, usual: str) -> str:
    """Returns a text from shortly before the place at which it differs from the usual one."""
    same = bisect_left(range(len(usual)), True, key=lambda end: not text.startswith(usual[: end + 1])) - MIN_PIECE
    return text if same < MIN_PIECE else f"{_ELLIPSIS}{text[same:]}"


def name_of(call: ToolCall) -> str:
    """Returns a tool's name for use in sentences."""
    return f"{printable(_cut(call.tool))} on MCP server {printable(_cut(call.server))}"


def quoted_name(name: str) -> str:
    """Returns a name, quoted unless it is a visible identifier, so it can't be mistaken for a value or another name."""
    if _LOOKALIKES.search(name):
        return json.dumps(name)
    plain = name.replace("-", "_").replace(".", "_").isidentifier() and printable(name) == name
    return name if plain else printable(_encoded(name))


def ascii_name(name: str) -> str:
    """Returns a server's or tool's name, quoted unless it is a visible identifier.

    Other letters and spaces are escaped, so it neither looks like another name nor breaks into two lines.
    """
    return (quoted_name(name) if name.isascii() else json.dumps(name)).replace(" ", "\\u0020")


def _dumped(value: object) -> str:
    """Returns a value's JSON; names in it can't be mistaken for others."""
    text = _encoded(value)
    if text.isascii() or not isinstance(value, dict | list):
        return text
    return _STRINGS.sub(lambda found: _escaped(found[0]) if found[1] else found[0], text)


#: Returns a value's JSON; three times as fast as `json.dumps` for short values.
_encoded: Callable[[object], str] = json.JSONEncoder(ensure_ascii=False).encode
#: Strings in JSON, with what follows a name.
_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"(: )?')
#: Letters that may look like Latin ones: all others except those of Chinese, Japanese and Korean.
_LOOKALIKES = re.compile(r"[^\x00-\x7f\u3040-\u9fff\uac00-\ud7a3]")


def _escaped(name: str) -> str:
    return f"{json.dumps(json.loads(name[:-2]))}: " if _LOOKALIKES.search(name) else name


def home_path(file: Path) -> str:
    """Returns the path of a file, from the home directory if the file is in it."""
    home = Path.home()
    return printable(f"~/{file.relative_to(home)}" if file.is_relative_to(home) else file)


def _lines(text: str, most: int = -1) -> list[str]:
    return text.removesuffix("\n").split("\n", most)


def _cut(text: str, most: int = MAX_LINE) -> str:
    """Returns a text, or its head and tail if it is too long: either end may be important."""
    missing = len(text) - most
    if missing <= 0:
        return text
    half = most // 2
    return f"{text[:half]} [... {missing:,} characters not shown ...] {text[-half:]}"


def _fit(lines: Sequence[str]) -> bool:
    return len(lines) <= LINES and all(_columns(line) <= COLUMNS for line in lines)


def _width(character: str) -> int:
    """Returns the columns of a character: two if some terminals or clients draw it wide, such as symbols."""
    return 1 if character < "\u1100" or character == _ELLIPSIS else 2


def _columns(text: str, most: int = 4 * COLUMNS) -> int:
    """Returns a text's width in terminal columns, or some number above `most`."""
    return sum(map(_width, text[: most + 1]))


def cut_columns(text: str, most: int) -> str:
    """Returns a text, or its head and tail, in at most `most` columns."""
    if _columns(text, most) <= most:
        return text
    tail = (most - 1) // 3
    return f"{_prefix(text, most - 1 - tail)}{_ELLIPSIS}{_prefix(text[::-1], tail)[::-1]}"


def _prefix(text: str, columns: int) -> str:
    end = 0
    for character in text[:columns]:
        columns -= _width(character)
        if columns < 0:
            break
        end += 1
    return text[:end]


def _cut_to_fit(pieces: Sequence[str], room: int) -> list[str]:
    """Returns the pieces of a list, the longest ones cut so that all fit."""
    width = _share([_columns(piece, room) + len(", ") for piece in pieces], room) - len(", ")
    return [cut_columns(piece, width) for piece in pieces]


def _share(widths: Sequence[int], room: int) -> int:
    """Returns the width to which the widest must be cut so that all fit."""
    for shorter, width in enumerate(sorted(widths)):
        share = room // (len(widths) - shorter)
        if width > share:
            return share
        room -= width
    return max(widths, default=0)


def wrapped(text: str, most: int, *, words: bool = False, columns: int = COLUMNS) -> list[str]:
    """Returns a text in lines of a form's or terminal's width: at most `most`, or one more if it is longer.

    With `words`, lines end between words where possible.
    """
    lines: list[str] = []
    start = 0
    while start < len(text) and len(lines) <= most:
        bar = BAR if lines else ""
        line = _prefix(text[start : start + columns], columns - len(bar))
        if words and start + len(line) < len(text) and (space := line.rfind(" ")) > len(line) // 2:
            line = line[: space + 1]
        lines.append(bar + line)
        start += len(line)
    return lines
