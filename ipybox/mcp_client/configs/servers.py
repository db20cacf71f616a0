"""The MCP servers that other clients' configurations define, with ipybox's parameters.

The user's own files are trusted. Files that code can write, such as the workspace's, are input: they have a size limit,
no link in the workspace is followed, and a person has to confirm each of their servers.
"""

import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ipybox.mcp_client.configs.clients import FILES, ConfigFile, Scope, expanded
from ipybox.mcp_client.params import RemoteParams, parse_params
from ipybox.mcp_client.secrets import hide_literals
from ipybox.support.bounded_json import MAX_VALUES, exceeds_value_limit
from ipybox.support.names import OWN_NAME
from ipybox.support.printable import printable
from ipybox.workspace.env_file import parse_env_file
from ipybox.workspace.trust import read_untrusted
from ipybox.workspace.writable import WritablePlaces

#: Maximum bytes of an untrusted configuration and all `envFile`s of its servers.
MAX_UNTRUSTED = 256 << 10

#: Maximum dots in a line of TOML: dotted keys take Python quadratic time.
MAX_DOTS = 200

#: The keys that matter, by the names that they have in ipybox or in Codex. All others are about when a client starts a
#: server and what it asks, except those that ipybox doesn't support.
_KEYS = {
    **{key: key for key in ("command", "args", "env", "cwd", "type", "url", "headers", "envFile", "env_vars")},
    **{key: key for key in ("env_http_headers", "bearer_token_env_var")},
    **{"environment": "env", "http_headers": "headers", "httpUrl": "url", "transport": "type"},
}
_TYPES = {"local": "stdio", "remote": "http"}
#: The problem of ipybox's own entries.
ITSELF = "it is ipybox itself"

_UNSUPPORTED = ("auth", "authProviderType", "headersHelper", "oauth", "sandboxEnabled")
_FILTERS = frozenset(("disabled_tools", "enabled_tools", "excludeTools", "includeTools"))

# Strings come first, because they may contain the rest. Quantifiers are possessive, so both take linear time.
_STRING = r'"(?:\\.|[^"\\])*+"?+'
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?+", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"({_STRING})|,(?=\s*+[\]}}])", re.DOTALL)

_Entry = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ConfiguredServer:
    """A server in a client's configuration."""

    name: str
    client: str
    scope: Scope
    file: Path
    #: Whether code, or a repository's author, can write the file.
    is_untrusted: bool
    #: Whether it is disabled in the client.
    disabled: bool
    #: How to remove it from the client.
    removal: str
    #: The parameters with placeholders, and the values of those that replace secrets; empty if there is a problem.
    params: dict[str, Any]
    secrets: dict[str, str] = field(repr=False)
    #: Why it can't be imported, or else what is different in ipybox.
    problem: str
    note: str

    @property
    def command_line(self) -> str:
        """The command with its variables, or the URL, in a line without secrets; empty if there is a problem."""
        env = [f"{name}={value}" for name, value in self.params.get("env", {}).items()]
        command = [self.params.get("command", ""), *self.params.get("args", [])]
        return printable(self.params.get("url") or " ".join([*env, *command]))

    @property
    def package(self) -> str:
        """The name to register it with."""
        return re.sub(r"[^\w .-]|^(?=\d)", "_", self.name)

    def __str__(self) -> str:
        return f"{printable(self.name)} in {self.file}: {self.problem or self.command_line}"


def configured_servers(workspace: Path, places: WritablePlaces) -> tuple[list[ConfiguredServer], list[str]]:
    """Returns the servers in the configurations of a user and a workspace, and which files can't be read, and why."""
    servers: list[ConfiguredServer] = []
    unreadable: list[str] = []
    for config in FILES:
        for path, scope in config.paths(workspace).items():
            try:
                servers += _ConfigReader(config, path, workspace, places.covers(path)).servers(scope)
            except FileNotFoundError:
                continue
            except (OSError, RecursionError, ValueError) as exc:
                unreadable.append(f"can't read {path}: {getattr(exc, 'strerror', None) or exc}")
    return sorted(servers, key=lambda server: server.is_untrusted), unreadable


def find_server(servers: Sequence[ConfiguredServer], name: str) -> ConfiguredServer:
    """Returns the server with exactly this name.

    Raises:
        ValueError: If there is none, it can't be imported, or several entries define it differently.
    """
    found = [server for server in servers if server.name == name]
    if not found:
        names = ", ".join(dict.fromkeys(server.name for server in servers)) or "none"
        raise ValueError(f"no MCP client is configured with a server named {name!r}; configured servers: {names}")
    first = found[0]
    if any((each.params, each.secrets) != (first.params, first.secrets) for each in found):
        raise ValueError("\n".join([f"{name!r} is ambiguous, use `ipybox import --from CLIENT`:", *map(str, found)]))
    if first.problem:
        raise ValueError(f"can't import {first}")
    return first


@dataclass
class _ConfigReader:
    """Reads the servers in one file."""

    _config: ConfigFile
    _file: Path
    _workspace: Path
    _is_untrusted: bool
    #: Bytes of untrusted files so far.
    _untrusted: int = 0

    def servers(self, scope: Scope) -> Iterator[ConfiguredServer]:
        data = self._read(self._file, is_untrusted=self._is_untrusted)
        content = _toml(data) if self._file.suffix == ".toml" else parse_jsonc(data)
        keys = self._config.key.split(".")
        yield from self._section(scope, content, keys)
        if self._config.client == "claude-code" and scope == "user":
            for place in (self._workspace, *self._workspace.parents):
                yield from self._section("local", content, ["projects", str(place), *keys])

    def _section(self, scope: Scope, section: Any, keys: Sequence[str]) -> Iterator[ConfiguredServer]:
        for key in keys:
            section = _object(section).get(key)
        for name, definition in _object(section).items():
            yield self._server(scope, name, _object(definition))

    def _server(self, scope: Scope, name: str, entry: _Entry) -> ConfiguredServer:
        remove = self._config.remove
        if not remove or (scope != "user" and "{scope}" not in remove):
            remove = f"delete {self._config.key}.{{name}} in {self._file}"
        params, secrets, problem = dict[str, Any](), dict[str, str](), ""
        try:
            params, secrets = hide_literals(name, self._params(entry))
        except ValueError as exc:
            problem = str(exc).replace("server_params", "its definition")
        except (AttributeError, LookupError, RecursionError, TypeError):
            problem = "its definition is incomplete or malformed"
        return ConfiguredServer(
            name=name,
            client=self._config.client,
            scope=scope,
            file=self._file,
            is_untrusted=self._is_untrusted,
            disabled=entry.get("disabled") is True or entry.get("enabled") is False,
            removal=remove.format(name=shlex.quote(name), scope=scope),
            params=params,
            secrets=secrets,
            problem=problem,
            note="" if _FILTERS.isdisjoint(entry) else "its filter of tools does not apply in ipybox",
        )

    def _params(self, entry: _Entry) -> dict[str, Any]:
        """Returns ipybox's parameters, which are the same for the same server in any client."""
        if unsupported := [key for key in _UNSUPPORTED if entry.get(key)]:
            raise ValueError(f"ipybox doesn't support its {unsupported[0]}")
        given = {name: self._expanded(entry[key]) for key, name in _KEYS.items() if entry.get(key) is not None}
        kind = _TYPES.get(given.get("type", ""), given.get("type"))
        if "url" in given:
            is_sse = given["url"].endswith("/sse") or (self._config.client in ("gemini", "qwen") and "url" in entry)
            kind = kind or ("sse" if is_sse else "http")
            wanted: _Entry = {"url": given["url"], "type": kind, "headers": _headers(given)}
        else:
            command: Any = given["command"]
            words = cast("list[Any]", command) if isinstance(command, list) else [command, *given.get("args", [])]
            if OWN_NAME in (Path(words[0]).name, *words[1:]):
                raise ValueError(ITSELF)
            cwd = given.get("cwd") and str(self._workspace / Path(given["cwd"]).expanduser())
            wanted = {"command": words[0], "args": words[1:], "env": self._variables(given), "cwd": cwd}
        params = {key: value for key, value in wanted.items() if value}
        server = parse_params(params | {"type": kind})
        return params | {"type": server.kind} if isinstance(server, RemoteParams) else params

    def _variables(self, given: _Entry) -> dict[str, str]:
        env_file = self._env_file(Path(given["envFile"])) if "envFile" in given else {}
        names = (each if isinstance(each, str) else each["name"] for each in given.get("env_vars", []))
        passed = {name: f"${{{name}}}" for name in names if name in os.environ}  # Codex omits those that are not set
        return passed | env_file | given.get("env", {})

    def _expanded(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._expanded(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {key: self._expanded(item) for key, item in _object(value).items() if item is not None}
        text = value if isinstance(value, str) else str(value).lower()  # VS Code allows numbers as variables
        return expanded(text, self._config.client, self._workspace)

    def _env_file(self, path: Path) -> dict[str, str]:
        path = Path(os.path.abspath(self._workspace / path.expanduser()))
        is_inside = path.is_relative_to(self._workspace)
        if self._is_untrusted and not is_inside:
            raise ValueError("its envFile is outside of the workspace")
        try:
            return parse_env_file(self._read(path, is_untrusted=is_inside))[0]
        except OSError as exc:
            raise ValueError(f"its envFile can't be read: {exc.strerror or exc}") from None

    def _read(self, path: Path, *, is_untrusted: bool) -> bytes:
        if not is_untrusted:
            return path.read_bytes()
        data = read_untrusted(path, self._workspace)
        self._untrusted += len(data)
        if self._untrusted > MAX_UNTRUSTED:
            raise OSError(f"the files for all servers are larger than {MAX_UNTRUSTED} bytes")
        return data


def _toml(data: bytes) -> dict[str, Any]:
    if any(line.count(b".") > MAX_DOTS for line in data.splitlines()):
        raise ValueError(f"a line contains more than {MAX_DOTS} dots")
    return tomllib.loads(data.decode())


def _object(value: Any) -> _Entry:
    """Returns a JSON object; any other value counts as an empty one."""
    return cast("_Entry", value) if isinstance(value, dict) else {}


def _headers(given: _Entry) -> dict[str, str]:
    headers = {name: f"${{{variable}}}" for name, variable in given.get("env_http_headers", {}).items()}
    if "bearer_token_env_var" in given:
        headers["Authorization"] = f"Bearer ${{{given['bearer_token_env_var']}}}"
    return given.get("headers", {}) | headers


def parse_jsonc(data: bytes) -> Any:
    """Returns the value of JSON, with or without comments and trailing commas; raises a ValueError if it is neither."""
    if exceeds_value_limit(data):
        raise ValueError(f"more than {MAX_VALUES:,} values")
    text = data.decode("utf-8-sig")
    try:
        try:
            return json.loads(text)
        except ValueError:
            for pattern in (_COMMENT, _TRAILING_COMMA):
                text = pattern.sub(lambda match: match[1] or " ", text)
            return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
