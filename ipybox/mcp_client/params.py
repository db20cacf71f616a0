"""MCP server parameters: untyped JSON in, one of two typed descriptions out.

    {"command": "npx", "args"?: [...], "env"?: {...}, "cwd"?: "..."}       a stdio server, started by ipybox
    {"url": "https://…/mcp", "headers"?: {...}, "type"?: "…", "oauth"?: {...}}   a server that runs elsewhere

Other clients' keys are accepted if their meaning is clear: `transport` is an alias of `type`, and `disabled`, `timeout`
and the like have no effect.

Pure, so that parameters can be checked before anything is started.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, TypeVar, cast
from urllib.parse import urlsplit, urlunsplit

from pydantic import StringConstraints, TypeAdapter, ValidationError

from ipybox.support.placeholders import variables

Kind = Literal["stdio", "http", "sse"]
#: The text of a value; no program can receive a NUL.
Text = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00]*$")]

_T = TypeVar("_T")

# Regardless of case, hyphens and underscores: other clients write `streamableHttp`.
_KINDS: dict[str, Kind] = {"stdio": "stdio", "http": "http", "streamablehttp": "http", "sse": "sse"}
_KIND_NAMES = ("http", "sse", "stdio", "streamable-http")
_STDIO_KEYS = ("command", "args", "env", "cwd", "type", "transport")
_REMOTE_KEYS = ("url", "headers", "type", "transport", "oauth")
# Other clients' keys for when to start a server and whether to ask for approval, which ipybox decides itself.
_IGNORED_KEYS = ("alwaysAllow", "autoApprove", "description", "disabled", "enabled", "timeout", "trust")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True)
class OAuthParams:
    """How ipybox identifies itself to an authorization server that knows it already; all fields are optional."""

    #: `client_credentials` needs no person, but a secret or a key.
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    client_id: Text | None = None
    client_secret: Text | None = None
    #: A key in PEM format with which the client signs its assertions (RFC 7523).
    private_key: Text | None = None
    #: The signing algorithm, as named in RFC 7518.
    signing_algorithm: Text = "RS256"
    #: The authorization server that registered the client; no other server gets the secret.
    issuer: Text | None = None
    #: Scopes to request instead of those that the server suggests, separated by spaces.
    scope: Text | None = None
    token_endpoint_auth_method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    #: The URL of the client's published metadata, for a server that accepts this as its id.
    client_metadata_url: Text | None = None
    #: The address to which the browser returns, if the authorization server requires a specific one.
    redirect_uri: Text | None = None


@dataclass(frozen=True, kw_only=True)
class StdioParams:
    """A server that is started as a process, with messages over its stdin and stdout."""

    command: Text
    args: list[str] = field(default_factory=list[str])
    #: In addition to the few variables that every server gets (HOME, PATH, …).
    env: dict[str, str] = field(default_factory=dict[str, str])
    cwd: Text | None = None


@dataclass(frozen=True, kw_only=True)
class RemoteParams:
    """A server that is reached over HTTP."""

    url: Text
    headers: dict[str, str] = field(default_factory=dict[str, str])
    #: None while the URL contains placeholders and no type is given.
    kind: Literal["http", "sse"] | None = None
    #: How ipybox signs in, if a client was registered in advance.
    oauth: OAuthParams | None = None

    @property
    def has_credentials(self) -> bool:
        """Whether the URL or headers authorize requests."""
        return "authorization" in map(str.lower, self.headers) or "@" in urlsplit(self.url).netloc


_STDIO, _REMOTE, _OAUTH = TypeAdapter(StdioParams), TypeAdapter(RemoteParams), TypeAdapter(OAuthParams)


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
        problem = (
            "not both" if "command" in server_params else f"but contain only {[str(key) for key in server_params]}"
        )
        raise ValueError(f"server_params need either 'command' (a stdio server) or 'url', {problem}")
    kind: Kind | None = None
    for key in ("type", "transport"):
        if kind is None and (name := server_params.get(key)) is not None:
            kind = _KINDS.get(re.sub("[-_]", "", name.lower())) if isinstance(name, str) else None
            if kind is None:
                raise ValueError(f"server_params[{key!r}] must be one of {list(_KIND_NAMES)}")
    ignored = (*_IGNORED_KEYS, "type", "transport")
    given = {key: value for key, value in server_params.items() if value is not None and key not in ignored}
    if "command" in server_params:
        if kind not in ("stdio", None):
            raise ValueError("server_params['type'] must be 'stdio' for a 'command'")
        return _validated(_STDIO, given, _STDIO_KEYS)
    if kind == "stdio":
        raise ValueError("server_params['type'] can't be 'stdio' if there is a 'url'")
    if "oauth" in given:
        given["oauth"] = _parse_oauth(given["oauth"])
    server = _validated(_REMOTE, given, _REMOTE_KEYS)
    if server.oauth is not None and server.has_credentials:
        raise ValueError("server_params can't combine 'oauth' with an 'Authorization' header or credentials in 'url'")
    return replace(server, kind=_kind_of(server.url, kind))


def _validated(
    described: TypeAdapter[_T], given: dict[str, Any], known: Collection[str], place: str = "server_params"
) -> _T:
    if unknown := given.keys() - known:
        names = [*map(str, filter(unknown.__contains__, given))]
        raise ValueError(f"{place} contain unknown keys {names}; valid keys are {list(known)}")
    try:
        return described.validate_python(given)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        keys = "".join(f"[{key!r}]" for key in error["loc"])
        raise ValueError(f"{place}{keys} is not valid: {error['msg']}") from None


def _parse_oauth(given: Any) -> OAuthParams:
    place = "server_params['oauth']"
    if not isinstance(given, dict):
        raise ValueError(f"{place} must be a dict")
    params = _validated(_OAUTH, cast("dict[str, Any]", given), [item.name for item in fields(OAuthParams)], place)
    if problem := _problem(params):
        raise ValueError(f"{place} {problem}")
    return params


def public_url(url: str) -> str:
    """Returns `url` without the parts that may hold credentials: user, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def is_secure(url: str) -> bool:
    """Returns whether requests to a URL are private: it is HTTPS, or stays on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


def _kind_of(url: str, given: Literal["http", "sse"] | None) -> Literal["http", "sse"] | None:
    """Returns the given transport, or else the one that the path implies: /sse at its end is SSE even below /mcp."""
    try:
        parts = urlsplit(url)
    except ValueError as exc:
        raise ValueError(f"server_params['url'] is not a URL: {exc}") from None
    if parts.scheme not in ("http", "https") and not variables(url):
        raise ValueError("server_params['url'] must start with http:// or https://")
    if given is not None:
        return given
    path = parts.path.rstrip("/")
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


def _problem(params: OAuthParams) -> str | None:
    secrets = [secret for secret in (params.client_secret, params.private_key) if secret is not None]
    machine = params.grant == "client_credentials"
    if len(secrets) > 1:
        return "can't contain both 'client_secret' and 'private_key'"
    if secrets and not (params.client_id and params.issuer):
        # Without an issuer, the MCP server would choose the recipient of the secret.
        return "needs 'client_id' and 'issuer' along with a secret, so that only that issuer receives the secret"
    if machine and not secrets:
        return "needs 'client_secret' or 'private_key' for 'client_credentials'"
    if params.private_key is not None and not machine:
        return "can contain 'private_key' only for the grant 'client_credentials'"
    if params.client_id is not None and params.client_metadata_url is not None:
        return "can't contain both 'client_id' and 'client_metadata_url'"
    if params.client_metadata_url is not None and not _is_document(params.client_metadata_url):
        return "needs a 'client_metadata_url' that starts with https:// and has a path"
    if params.redirect_uri is not None and not _is_local(params.redirect_uri):
        return "needs a 'redirect_uri' on this machine with a port, such as http://localhost:8765/callback"
    return None


def _is_document(url: str) -> bool:
    return bool(variables(url)) or (urlsplit(url).scheme == "https" and urlsplit(url).path not in ("", "/"))


def _is_local(url: str) -> bool:
    if variables(url):
        return True
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and parts.hostname in _LOOPBACK and parts.port is not None
    except ValueError:  # the port is invalid
        return False
