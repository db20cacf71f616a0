"""MCP server parameters: untyped JSON in, one of two typed descriptions out.

    {"command": "npx", "args"?: [...], "env"?: {...}, "cwd"?: "..."}       a stdio server, started by ipybox
    {"url": "https://…/mcp", "headers"?: {...}, "type"?: "…", "oauth"?: {...}}   a server that runs elsewhere

Other clients' keys are accepted if their meaning is clear: `transport` is an alias of `type`, and `disabled`, `timeout`
and the like have no effect.

Pure and cheap to import, so that parameters can be checked before anything is started.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Literal, cast
from urllib.parse import urlsplit, urlunsplit

from ipybox.mcp_client.oauth.params import OAuthParams, parse_oauth
from ipybox.support.placeholders import variables

Kind = Literal["stdio", "http", "sse"]

# Regardless of case, hyphens and underscores: other clients write `streamableHttp`.
_KINDS: dict[str, Kind] = {"stdio": "stdio", "http": "http", "streamablehttp": "http", "sse": "sse"}
_KIND_NAMES = ("http", "sse", "stdio", "streamable-http")
_STDIO_KEYS = ("command", "args", "env", "cwd", "type", "transport")
_REMOTE_KEYS = ("url", "headers", "type", "transport", "oauth")
# Other clients' keys for when to start a server and whether to ask for approval, which ipybox decides itself.
_IGNORED_KEYS = ("alwaysAllow", "autoApprove", "description", "disabled", "enabled", "timeout", "trust")


@dataclass(frozen=True, kw_only=True)
class StdioParams:
    """A server that is started as a process, with messages over its stdin and stdout."""

    command: str
    args: list[str] = field(default_factory=list[str])
    #: In addition to the few variables that every server gets (HOME, PATH, …).
    env: dict[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None


@dataclass(frozen=True, kw_only=True)
class RemoteParams:
    """A server that is reached over HTTP."""

    url: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    #: None while the URL contains placeholders and no type is given.
    kind: Literal["http", "sse"] | None
    #: How ipybox signs in, if a client was registered in advance.
    oauth: OAuthParams | None = None

    @property
    def has_credentials(self) -> bool:
        """Whether the URL or headers authorize requests."""
        return "authorization" in map(str.lower, self.headers) or "@" in urlsplit(self.url).netloc


def parse_params(server_params: dict[str, Any]) -> StdioParams | RemoteParams:
    """Checks the shape of server parameters, with or without their placeholders.

    Raises:
        ValueError: If they are invalid; the message names the key, never a value, because values may be secret.
    """
    if not isinstance(server_params, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - JSON from outside
        raise ValueError(f"server_params must be a dict, not {type(server_params).__name__}")
    if "mcpServers" in server_params:
        raise ValueError("server_params must describe a single server: pass one of the values in 'mcpServers'")
    if ("command" in server_params) == ("url" in server_params):
        given = "not both" if "command" in server_params else f"but contain only {[str(key) for key in server_params]}"
        raise ValueError(f"server_params need either 'command' (a stdio server) or 'url', {given}")
    known = _STDIO_KEYS if "command" in server_params else _REMOTE_KEYS
    if not server_params.keys() <= {*known, *_IGNORED_KEYS}:
        unknown = [str(key) for key in server_params if key not in (*known, *_IGNORED_KEYS)]
        raise ValueError(f"server_params contain unknown keys {unknown}; valid keys are {list(known)}")
    kind = _kind(server_params)
    if "command" in server_params:
        if kind not in ("stdio", None):
            raise ValueError("server_params['type'] must be 'stdio' for a 'command'")
        return StdioParams(
            command=_string(server_params, "command"),
            args=_strings(server_params, "args"),
            env=_string_map(server_params, "env"),
            cwd=_string(server_params, "cwd") if server_params.get("cwd") is not None else None,
        )
    if kind == "stdio":
        raise ValueError("server_params['type'] can't be 'stdio' if there is a 'url'")
    url = _url(server_params)
    server = RemoteParams(
        url=url,
        headers=_string_map(server_params, "headers"),
        kind=kind or _kind_of(url),
        oauth=None if server_params.get("oauth") is None else parse_oauth(server_params["oauth"]),
    )
    if server.oauth is not None and server.has_credentials:
        raise ValueError("server_params can't combine 'oauth' with an 'Authorization' header or credentials in 'url'")
    return server


def public_url(url: str) -> str:
    """Returns `url` without the parts that may hold credentials: user, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("?")[0]
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def _kind(params: dict[str, Any]) -> Kind | None:
    kinds: dict[str, Kind] = {}
    for key in ("type", "transport"):
        if (name := params.get(key)) is None:
            continue
        kind = _KINDS.get(re.sub("[-_]", "", name.lower())) if isinstance(name, str) else None
        if kind is None:
            raise ValueError(f"server_params[{key!r}] must be one of {list(_KIND_NAMES)}")
        kinds[key] = kind
    if len(set(kinds.values())) > 1:
        raise ValueError("server_params['type'] and server_params['transport'] contradict each other")
    return next(iter(kinds.values()), None)


def _url(params: dict[str, Any]) -> str:
    url = _string(params, "url")
    try:
        scheme = urlsplit(url).scheme
    except ValueError as exc:
        raise ValueError(f"server_params['url'] is not a URL: {exc}") from None
    if scheme not in ("http", "https") and not variables(url):
        raise ValueError("server_params['url'] must start with http:// or https://")
    return url


def _kind_of(url: str) -> Literal["http", "sse"] | None:
    """Returns the transport that a URL's path implies: one that ends in /sse is SSE even below /mcp, as in Gradio."""
    path = urlsplit(url).path.rstrip("/")
    if path.endswith("/sse"):
        return "sse"
    if "/mcp" in path:
        return "http"
    if "/sse" in path:
        return "sse"
    if variables(url):
        return None
    raise ValueError(
        "the path of server_params['url'] contains neither /mcp nor /sse: "
        "set 'type' to 'http' (Streamable HTTP) or 'sse'"
    )


def _string(params: dict[str, Any], key: str) -> str:
    value = params[key]
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"server_params[{key!r}] must be a non-empty string")
    return value


def _strings(params: dict[str, Any], key: str) -> list[str]:
    value: Any = [] if params.get(key) is None else params[key]
    if not isinstance(value, list) or not {*map(type, cast("list[Any]", value))} <= {str}:
        raise ValueError(f"server_params[{key!r}] must be a list of strings")
    return [*cast("list[str]", value)]


def _string_map(params: dict[str, Any], key: str) -> dict[str, str]:
    value: Any = {} if params.get(key) is None else params[key]
    if not isinstance(value, dict):
        raise ValueError(f"server_params[{key!r}] must be a dict of strings")
    for name, item in cast("dict[Any, Any]", value).items():
        if not isinstance(name, str) or not isinstance(item, str):
            raise ValueError(f"server_params[{key!r}][{name!r}] must be a string")
    return dict(cast("dict[str, str]", value))
