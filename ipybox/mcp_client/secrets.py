"""Finds plain-text secrets in the parameters of an MCP server, and moves them to `${VAR}` placeholders.

Parameters are written into the generated package, which code can read, and appear in errors.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from ipybox.audit.records import MAX_NAME
from ipybox.audit.redaction import has_known_form, is_secret, is_secret_name, looks_secret
from ipybox.mcp_client.params import RemoteParams, StdioParams
from ipybox.support.placeholders import map_literals, variable_name, variables

#: Values of variables and headers that are settings, not secrets.
_SETTING = re.compile(
    r"true|false|yes|no|on|off|\d{1,5}|debug|info|warn(?:ing)?|error|production|development|application/json",
    re.IGNORECASE,
)
#: Options that precede a variable or a header, and what separates its name from its value.
_NAMING = {"-e": "=", "--env": "=", "-H": ":", "--header": ":"}
_SCHEME = re.compile(r"\s*+(?:(?:bearer|basic|token)\s++)?+", re.IGNORECASE)


@dataclass(frozen=True)
class LiteralSecret:
    """A secret in plain text."""

    #: Its place in the parameters.
    place: str
    #: The name of its variable, option or header.
    name: str
    value: str

    def advice(self, server_name: str) -> str:
        """Returns advice on how to move it to a variable, without the secret."""
        name = re.sub(r"\W+", "_", self.name, flags=re.ASCII).strip("_").upper()
        if name != self.name:  # the name of a header or an option
            name = f"{server_name.upper()}_{name}"
        return (
            f"{self.place} is a plain-text secret that cells can read in the generated package: ask the user to add "
            f"{name}=<the secret> to .env, then register the server again with ${{{name}}} in its place"
        )


def literal_secrets(server: StdioParams | RemoteParams) -> Iterator[LiteralSecret]:
    """Yields the plain-text secrets in parameters, recognized by name and form; placeholders are not secrets."""
    for secret in _of_process(server) if isinstance(server, StdioParams) else _of_remote(server):
        if secret.value and not variables(secret.value):
            yield secret


def _of_process(server: StdioParams) -> Iterator[LiteralSecret]:
    for name, value in server.env.items():
        if is_secret(name, value):
            yield LiteralSecret(f"env {name}", name, value)
    for before, argument in pairwise(["", *server.args]):
        name, value = "", argument  # `--api-key …`, `--api-key=…`, `API_KEY=…`, or `X-API-Key: …`
        if before.startswith("-") and not argument.startswith("-") and is_secret_name(before):
            name = before
        elif found := re.fullmatch(r"([\w.-]+)[=:]\s*(.+)", argument, re.DOTALL):
            name, value = found[1], found[2]
        if is_secret(name, value) and (is_secret_name(name) or name.isupper()):
            yield LiteralSecret(f"the argument {name}", name, _token(value))
        elif has_known_form(argument):
            yield LiteralSecret("an argument", "key", argument)


def _of_remote(server: RemoteParams) -> Iterator[LiteralSecret]:
    for name, value in server.headers.items():
        if is_secret(name, value):
            yield LiteralSecret(f"the header {name}", name.replace("Authorization", "token"), _token(value))
    if server.oauth is not None:
        for name in ("client_secret", "private_key"):
            if value := getattr(server.oauth, name):
                yield LiteralSecret(f"oauth {name}", name, value)
    parts = urlsplit(server.url)
    if parts.password:
        yield LiteralSecret("the password in the URL", "password", parts.password)
    for name, value in parse_qsl(parts.query):
        if is_secret(name, value):
            yield LiteralSecret(f"{name} in the URL", name, value)
    for segment in parts.path.split("/"):
        if looks_secret(segment):
            yield LiteralSecret("part of the URL", "key", segment)


def _token(value: str) -> str:
    """Returns the token after the scheme in `Bearer …`."""
    return (value.split() or [""])[-1]


def hide_literals(server_name: str, server_params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns valid parameters with placeholders for possible secrets, and the values of these placeholders.

    All values of variables, headers and a URL's query count, except usual settings; of arguments and the rest of the
    URL, what `literal_secrets` recognizes.
    """
    server_name = server_name[:MAX_NAME]  # a part of each placeholder
    hiding = _Hiding(server_name, {*variables(server_params)})
    hidden = {**server_params}
    for key, prefix in (("env", ""), ("headers", f"{server_name}_")):
        if key in hidden:
            hidden[key] = {name: hiding.value(name, value, prefix) for name, value in hidden[key].items()}
    if "args" in hidden:
        hidden["args"] = [hiding.argument(*each) for each in pairwise(["", *hidden["args"]])]
    if "url" in hidden:
        hidden["url"] = hiding.url(hidden["url"])
    return hidden, hiding.values


class _Hiding:
    """Replaces literals in one server's parameters."""

    def __init__(self, server_name: str, taken: set[str]):
        self._server_name = server_name
        self._taken = taken
        self._numbers = defaultdict[str, Iterator[int]](partial(count, 2))
        #: The hidden values by the names of their placeholders.
        self.values: dict[str, str] = {}

    def value(self, name: str, value: str, prefix: str = "") -> str:
        """Returns the value of a variable or header with placeholders, unless it is a usual setting."""
        is_setting = _SETTING.fullmatch(value.strip()) and not is_secret_name(name)
        return value if is_setting else self.hide(f"{prefix}{name}", value)

    def hide(self, name: str, text: str) -> str:
        """Returns a text with placeholders for everything in it that is neither one already nor `Bearer`."""

        def change(part: str) -> str:
            text = _SCHEME.sub("", part, count=1)
            value = text.rstrip()
            scheme, end = part.removesuffix(text), text.removeprefix(value)
            return f"{scheme}${{{self._named(name, value)}}}{end}" if value else part

        return map_literals(text, change)

    def argument(self, before: str, argument: str) -> str:
        """Returns an argument with a placeholder for a secret at its end; `before` may name it."""
        if (mark := _NAMING.get(before)) is not None and mark in argument:
            name, _, value = argument.partition(mark)
            return f"{name}{mark}{self.value(name, value)}"
        for secret in literal_secrets(StdioParams(command="", args=[before, argument])):
            if argument.endswith(secret.value) and secret.value != before:
                name = f"{self._server_name}_{secret.name}"
                return argument.removesuffix(secret.value) + self.hide(name, secret.value)
        return argument

    def url(self, url: str) -> str:
        """Returns a URL with placeholders for its password, its query's values, and segments that look like keys."""
        parts, name = urlsplit(url), self._server_name
        user, at, host = parts.netloc.rpartition("@")
        account, colon, password = user.partition(":")
        user = f"{account}:{self.hide(f'{name}_password', password)}" if colon else self.hide(name, account)
        path = [self.hide(f"{name}_key", each) if looks_secret(each) else each for each in parts.path.split("/")]
        fields = [field.partition("=") for field in parts.query.split("&")]
        query = "&".join(f"{field}{mark}{self.hide(f'{name}_{field}', value)}" for field, mark, value in fields)
        return urlunsplit(parts._replace(netloc=f"{user}{at}{host}", path="/".join(path), query=query))

    def _named(self, name: str, value: str) -> str:
        """Returns a variable name for a value: `name` as far as it is valid and not taken."""
        name = first = variable_name(name)
        while name in self._taken:
            name = f"{first}_{next(self._numbers[first])}"
        self._taken.add(name)
        self.values[name] = value
        return name
