"""The key `oauth` of a remote server's parameters: a client that was registered in advance.

Pure and cheap to import, so that parameters can be checked before anything is started.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from ipybox.support.placeholders import variables

Grant = Literal["authorization_code", "client_credentials"]
SecretMethod = Literal["client_secret_basic", "client_secret_post"]

_CHOICES = {
    "grant": ("authorization_code", "client_credentials"),
    "token_endpoint_auth_method": ("client_secret_basic", "client_secret_post"),
}
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True)
class OAuthParams:
    """How ipybox identifies itself to an authorization server; all fields are optional."""

    #: `client_credentials` needs no person, but a secret or a key.
    grant: Grant = "authorization_code"
    client_id: str | None = None
    client_secret: str | None = None
    #: A key in PEM format with which the client signs its assertions (RFC 7523).
    private_key: str | None = None
    #: The signing algorithm, as named in RFC 7518.
    signing_algorithm: str = "RS256"
    #: The authorization server that registered the client; no other server gets the secret.
    issuer: str | None = None
    #: Scopes to request instead of those that the server suggests, separated by spaces.
    scope: str | None = None
    token_endpoint_auth_method: SecretMethod = "client_secret_basic"
    #: The URL of the client's published metadata, for a server that accepts this as its id.
    client_metadata_url: str | None = None
    #: The address to which the browser returns, if the authorization server requires a specific one.
    redirect_uri: str | None = None


def parse_oauth(value: Any) -> OAuthParams:
    """Checks the key `oauth`, like `params.parse_params`."""
    if not isinstance(value, dict):
        raise ValueError("server_params['oauth'] must be a dict")
    given = cast("dict[Any, Any]", value)
    known = [field.name for field in fields(OAuthParams)]
    if unknown := [str(key) for key in given if key not in known]:
        raise ValueError(f"server_params['oauth'] contains unknown keys {unknown}; valid keys are {known}")
    for key, item in given.items():
        if not isinstance(item, str) or not item:
            raise ValueError(f"server_params['oauth'][{key!r}] must be a non-empty string")
        if key in _CHOICES and item not in _CHOICES[key]:
            raise ValueError(f"server_params['oauth'][{key!r}] must be one of {list(_CHOICES[key])}")
    params = OAuthParams(**given)
    if problem := _problem(params):
        raise ValueError(f"server_params['oauth'] {problem}")
    return params


def is_secure(url: str) -> bool:
    """Returns whether requests to a URL are private: it is HTTPS, or stays on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


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
