"""Removes secrets from texts and values: known values, fields with telling names, and texts that look like keys.

Code could disguise its actions as secrets. Therefore, patterns and names remove nothing that could be a command: no
text with white space, quotes or shell operators (`_TELLING`), and no URL or path. Only known values can contain such
characters.

Redaction takes linear time even on hostile text: patterns begin with a literal, and the rest is bounded or can't start
a match of its own.
"""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ipybox.workspace.env_file import FollowedFile

REDACTED = "[redacted]"

#: Shorter values are not secrets; values below the second limit may be words and are replaced only as whole words.
MIN_SECRET = 4
MIN_ANYWHERE = 8

#: Limits of the result: characters of a text, items of a list or object, and nesting levels.
MAX_TEXT = 2000
MAX_ITEMS = 100
MAX_DEPTH = 8

#: Maximum known values from cells' environments; the newest are kept. Each takes time for each text.
MAX_OF_CELLS = 200

#: Characters that are checked beyond a truncation: a split secret may be recognizable only by its end.
_BEYOND = 4096

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAMES = frozenset(
    (
        *("password", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets", "token", "authtoken", "cookie"),
        *("authorization", "credential", "credentials", "apikey", "accesskey", "privatekey"),
    )
)
#: Last words of variable names that also indicate a secret, and of names for facts about a secret.
_ALSO = frozenset({"pass", "key", "auth", "pat", "dsn", "creds"})
_ABOUT = frozenset(
    (
        *("host", "hostname", "url", "uri", "endpoint", "port", "path", "file", "dir", "directory"),
        *("name", "id", "type", "ttl", "timeout", "expiry", "days", "limit", "length", "size", "count", "max", "min"),
        *("region", "enabled"),
    )
)
_PAIRS = frozenset({("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("set", "cookie")})

_NAME = (
    r"(?:password|passwd|passphrase|passcode|secret(?!ar)|token(?!s|iz)|authorization|credential|cookie|api[_-]?key"
    r"|access[_-]?key|private[_-]?key)"
)
#: `password = "…"`, `"api_key": '…'`, `headers["Authorization"] = f"…"`: the name is kept, the text removed.
_ASSIGNED = re.compile(
    rf"({_NAME}[\w-]{{0,40}}[\"']?\]?\s{{0,8}}(?::\s{{0,8}}str\s{{0,8}})?[:=]\s{{0,8}}(?:\(\s{{0,8}})?[rbfu]{{0,2}})"
    r"(?:(\"\"\"|''')((?:\\.|(?!\2)[^\\])*)(\2|\Z)|([\"'])((?:\\.|(?!\5)[^\\\n])*)(\5|$))",
    re.IGNORECASE | re.DOTALL | re.MULTILINE,
)
#: `?token=…` in a URL, `--api-key=…` and `API_KEY=…` in a shell.
_UNQUOTED = re.compile(
    rf"((?i:(?:[?&]|(?<![\w-])--?)[\w.-]{{0,40}}?{_NAME}[\w.-]{{0,40}})=|{_NAME.upper()}[A-Z0-9_]{{0,40}}=)([^\s\"'`;|<>&)$]+)"
)
#: A value that contains one of these is removed only if it is known.
_TELLING = re.compile(r"[\s\"'`;|<>&]|\$[({]")
#: The lines of a private key after its first line, in a file or in a string with escapes. The last one may be short.
_PEM = re.compile(
    r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)(?:(?:\\[nr]|\s){1,4}[A-Za-z0-9+/=]{40,})+"
    r"(?:(?:\\[nr]|\s){1,4}[A-Za-z0-9+/=]{1,39}(?=(?:\\[nr]|\s){1,4}-----END ))?"
)
_SHAPES = re.compile(
    r"(?<![\w-])(?:"
    r"sk-[\w-]{16,}|(?:sk|rk)_(?:live|test)_\w{10,}|github_pat_\w{20,}|gl(?:pat|dt|rt|ptt|soat)-[\w-]{16,}"
    # The digit distinguishes these tokens from names in code.
    r"|(?:gh[opsur]|hf|npm)_(?=[A-Za-z]{0,40}\d)\w{20,}"
    r"|xox[abeprs]-[\w-]{10,}|xapp-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}(?!\w)|AIza[\w-]{30,}|ya29\.[\w-]{20,}"
    r"|pypi-[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"
    r")"
)
#: Length of the shortest text that `_SHAPES` and `_SCHEME` can match.
_SHORTEST_SHAPE = 14
_SCHEME = re.compile(r"\b((?:bearer|basic|token)\s{1,4})(?=[\w.~+/-]*[\d=])([\w.~+/-]{8,}=*)", re.IGNORECASE)
_SCHEME_NAME = re.compile(r"\A(?:bearer|basic|token)\s{1,4}", re.IGNORECASE)
_USER = re.compile(r"(://[^\s/@:\"']{0,200}:)([^\s/@\"']+)(?=@)")
#: An unbroken mix of letters and digits, unlike any word.
_RANDOM = re.compile(r"(?<![A-Za-z0-9+=])(?=[A-Za-z+=]*[0-9])(?=[0-9+=]*[A-Za-z])[A-Za-z0-9+=]{16,}")
_WORDLIKE = re.compile(r"true|false|none|null|yes|no|on|off|\d{1,5}|\w+://.*", re.IGNORECASE)
_PATH = re.compile(r"(?:~|\.{0,2})/[^/]+(?:/.*)?", re.DOTALL)
_HOSTNAME = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}(?::\d+)?")
#: Placeholders that refer to a secret without containing it.
_PLACEHOLDER = re.compile(r"(?:(?:bearer|basic|token)\s)?\s{0,8}(?:\$\{\w{1,200}\}){0,8}", re.IGNORECASE)


def shortened(secret: str) -> str:
    """Returns a secret's beginning and length, by which its owner recognizes it."""
    return f"{secret[: min(4, len(secret) // 4)]}[... {len(secret):,} characters, a secret]"


def is_secret_name(name: str) -> bool:
    """Returns whether the name of a field or variable indicates a secret."""
    words = [*map(str.lower, _WORDS.findall(name[:200]))]
    return not _NAMES.isdisjoint(words) or not _PAIRS.isdisjoint(pairwise(words))


def is_secret(name: str, value: str) -> bool:
    """Returns whether a variable's value is a secret, by its name or its form.

    Words, numbers, paths, hosts and URLs without credentials are not.
    """
    if looks_secret(value):
        return True
    words = [*map(str.lower, _WORDS.findall(name[:200]))]
    if not words or words[-1] in _ABOUT or _WORDLIKE.fullmatch(value) or _PATH.fullmatch(value):
        return False
    return is_secret_name(name) or words[-1] in _ALSO or any(word.endswith(("password", "token")) for word in words)


def looks_secret(value: str) -> bool:
    """Returns whether a value is or contains a known form of a key, or random letters and digits."""
    if has_known_form(value):
        return True
    return not _PATH.fullmatch(value) and not _HOSTNAME.fullmatch(value) and _RANDOM.search(value) is not None


def has_known_form(value: str) -> bool:
    """Returns whether a value is or contains a known form of a key or credential."""
    return _without_patterns(value) != value


def may_be_command(value: str) -> bool:
    """Returns whether a value could be a command, whatever its name says."""
    return _TELLING.search(value) is not None


def is_key(value: str) -> bool:
    """Returns whether a whole value has a known form of a key, which no command or address has."""
    return _SHAPES.fullmatch(value) is not None and not _HOSTNAME.fullmatch(value.lower())


def secrets_among(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables whose values are secrets."""
    return {name: value for name, value in variables.items() if is_secret(name, value)}


def workspace_redactor(
    workspace: Path, variables: Mapping[str, str], show: Callable[[str], str] | None = None
) -> "Redactor":
    """Returns a redactor that knows the secrets in variables, the environment, a workspace's `.env`, and imports.

    If it shows secrets to people, who decide on calls, it knows only keys of known forms from the `.env` and imports: a
    hostile repository could give addresses or hosts there, to hide them.
    """
    from ipybox.workspace import env_file
    from ipybox.workspace.env_file import FollowedFile
    from ipybox.workspace.seal import ImportedSecrets

    redactor = Redactor(show)
    redactor.add_secrets(secrets_among({**os.environ, **variables}))

    def kept(secrets: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in secrets.items() if show is None or is_key(value)}

    imported = ImportedSecrets(workspace)
    redactor.follow(
        FollowedFile(workspace / env_file.NAME, lambda: kept(secrets_among(env_file.read_env_file(workspace)))),
        FollowedFile(imported.directory, lambda: kept(imported.values())),
    )
    return redactor


class Redactor:
    """Removes secrets. Known values become `show(value)`, by default `${NAME}`, or `REDACTED` without a name."""

    def __init__(self, show: Callable[[str], str] | None = None) -> None:
        self._show = show
        #: Replacements by value, longest first, because a value may contain another.
        self._values: dict[str, str] = {}
        #: The values from cells, newest last, and all others.
        self._of_cells: dict[str, str] = {}
        self._lasting: dict[str, str] = {}
        self._longest = 0
        #: Files with secrets, and the secrets when last read.
        self._followed: dict[FollowedFile, Mapping[str, str]] = {}

    def follow(self, *files: "FollowedFile") -> None:
        """Replaces the secrets in these files from now on, including those that people add later."""
        self._followed = {file: {} for file in files}

    def add_secrets(self, variables: Mapping[str, str]) -> None:
        """Replaces these values from now on."""
        self._add(self._lasting, {value: f"${{{name}}}" for name, value in variables.items()})

    def add_cell_secrets(self, variables: Mapping[str, str]) -> None:
        """Replaces these values from now on, until later cells have added `MAX_OF_CELLS` others."""
        for value in variables.values():
            self._of_cells.pop(value, None)  # so that it becomes the newest
        self._add(self._of_cells, {value: f"${{{name}}}" for name, value in variables.items()})

    def hide(self, values: Iterable[str]) -> None:
        """Removes these values, which belong to no variable, from now on."""
        self._add(self._lasting, dict.fromkeys(values, REDACTED))

    def _add(self, to: dict[str, str], values: Mapping[str, str]) -> None:
        show = self._show
        new = {
            value: shown if show is None else show(value) for value, shown in values.items() if len(value) >= MIN_SECRET
        }
        if new.keys() <= to.keys():
            return
        to.update(new | to)
        for value in [*self._of_cells][: -max(MAX_OF_CELLS, len(new))]:
            del self._of_cells[value]
        # Replaced, not changed: other threads may be reading it.
        known = {**self._of_cells, **self._lasting}
        self._values = dict(sorted(known.items(), key=lambda item: -len(item[0])))
        self._longest = max(map(len, self._values))

    def text(self, text: str, limit: int = MAX_TEXT) -> str:
        """Returns a text without secrets, truncated to `limit` characters and a note."""
        self._look()
        kept = _without_patterns(self.known(text[: limit + max(_BEYOND, self._longest)]))
        if len(kept) <= limit and len(text) <= limit:
            return kept
        return f"{kept[:limit]}[... truncated, {len(text):,} characters in total ...]"

    def _look(self) -> None:
        for file, seen in self._followed.items():
            if (secrets := file.read()) is not seen:
                self._followed[file] = secrets
                self.add_secrets(secrets)

    def known(self, text: str) -> str:
        """Returns a text without the known values."""
        for value, shown in self._values.items():
            if value not in text:
                continue
            if len(value) >= MIN_ANYWHERE:
                text = text.replace(value, shown)
            else:
                text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", shown, text)
        return text

    def known_tokens(self, text: str) -> str:
        """Returns a text for people who decide on a call, without known values that are long and can't be a command.

        Code or a hostile repository may have chosen the values.
        """
        self._look()
        for value, shown in self._values.items():
            if len(value) >= MIN_ANYWHERE and value in text and not may_be_command(value):
                text = text.replace(value, shown)
        return text

    def value(self, value: Any, limit: int = MAX_TEXT) -> Any:
        """Returns a JSON value without secrets, truncated to about `limit` characters and notes."""
        return _Walk(self, limit).value(value, 0)


@dataclass
class _Walk:
    """Redacts one value, up to a limit of characters."""

    _redactor: Redactor
    _left: int

    def value(self, value: Any, depth: int, *, secret: bool = False) -> Any:
        """Returns a value without secrets. `secret` means that its name indicates one."""
        if secret and _is_token(value):
            value = REDACTED
        if isinstance(value, str):
            text = self._redactor.text(value, min(MAX_TEXT, max(self._left, 0)))
            self._left -= len(text)
            return text
        self._left -= 8
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)  # JSON has no such numbers
        if not isinstance(value, dict | list):
            return value
        items = cast("dict[str, Any] | list[Any]", value)
        if items and (depth == MAX_DEPTH or self._left <= 0):
            return f"[... {len(items):,} more ...]"
        return self._items(items, depth, secret=secret)

    def _items(self, items: dict[str, Any] | list[Any], depth: int, *, secret: bool) -> Any:
        names: list[str] = []
        values: list[Any] = []
        # In a command line, an option such as `--token` names what follows.
        named = items.items() if isinstance(items, dict) else pairwise(["", *items])
        secret = secret and (isinstance(items, dict) or len(items) == 1)  # several texts could be a command
        for name, item in named:
            if len(values) == MAX_ITEMS or self._left <= 0:
                names.append("...")
                values.append(f"[... {len(items) - len(values):,} more ...]")
                break
            if isinstance(items, dict):
                names.append(self._redactor.text(name, 200))
                self._left -= len(names[-1])
            elif not (isinstance(name, str) and name.startswith("-") and "=" not in name):
                name = ""
            values.append(self.value(item, depth + 1, secret=secret or is_secret_name(name)))
        return dict(zip(names, values, strict=True)) if isinstance(items, dict) else values


def _is_token(value: object) -> bool:
    """Returns whether to remove a value that has a secret's name. Placeholders and possible commands are kept."""
    if isinstance(value, str):
        value = _SCHEME_NAME.sub("", value, 1)
        named = "://" in value or (_PATH.fullmatch(value) and not _RANDOM.search(value))
        return not (named or _PLACEHOLDER.fullmatch(value) or _TELLING.search(value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _without_patterns(text: str) -> str:
    # Most texts are short names and values: checking for literals first saves most of the time.
    if len(text) >= _SHORTEST_SHAPE:
        text = _PEM.sub(rf"\1 {REDACTED}", text)
        text = _SHAPES.sub(REDACTED, text)
        text = _SCHEME.sub(_removed, text)
    if "=" in text or ":" in text:
        text = _ASSIGNED.sub(_assigned, text)
        text = _UNQUOTED.sub(_removed, text)
        text = _USER.sub(_removed, text)
    return text


def _removed(match: re.Match[str]) -> str:
    return match[1] + REDACTED if _is_token(match[2]) else match[0]


def _assigned(match: re.Match[str]) -> str:
    name, long_quote, long_text, long_end, quote, text, end = match.groups()
    if not _is_token(long_text or text or ""):
        return match[0]
    return f"{name}{long_quote or quote}{REDACTED}{end if long_end is None else long_end}"
