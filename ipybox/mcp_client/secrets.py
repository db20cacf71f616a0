"""Finds plain-text secrets in the parameters of an MCP server, which should be `${VAR}` placeholders.

Parameters are written into the generated package, which code can read, and appear in errors.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import parse_qsl, urlsplit

from ipybox.audit.redaction import has_known_form, is_secret, is_secret_name, looks_secret
from ipybox.mcp_client.params import RemoteParams, StdioParams
from ipybox.support.placeholders import variables


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
        name, value = _named(before, argument)
        if is_secret(name, value) and (is_secret_name(name) or name.isupper()):
            yield LiteralSecret(f"the argument {name}", name, _token(value))
        elif has_known_form(argument):
            yield LiteralSecret("an argument", "key", argument)


def _named(before: str, argument: str) -> tuple[str, str]:
    """Returns an argument with its name: `--api-key …`, `--api-key=…`, `API_KEY=…`, or `X-API-Key: …`."""
    if before.startswith("-") and not argument.startswith("-") and is_secret_name(before):
        return before, argument
    found = re.fullmatch(r"([\w.-]+)[=:]\s*(.+)", argument, re.DOTALL)
    return (found[1], found[2]) if found else ("", argument)


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
