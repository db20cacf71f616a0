"""The key `oauth` of a remote server's parameters: what somebody agreed with its authorization server beforehand.

Pure and cheap to import, so that parameters can be checked before anything is started.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from ipybox.vars import variables

Grant = Literal["authorization_code", "client_credentials"]
SecretMethod = Literal["client_secret_basic", "client_secret_post"]

_CHOICES = {
    "grant": ("authorization_code", "client_credentials"),
    "token_endpoint_auth_method": ("client_secret_basic", "client_secret_post"),
}
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True)
class OAuthParams:
    """How ipybox is known to an authorization server; all of it may be left out."""

    #: `client_credentials` needs no person, but a secret or a key.
    grant: Grant = "authorization_code"
    client_id: str | None = None
    client_secret: str | None = None
    #: A key in PEM format with which the client signs what it says of itself (RFC 7523).
    private_key: str | None = None
    #: How it signs, by the names of RFC 7518.
    signing_algorithm: str = "RS256"
    #: The authorization server that the secret belongs to; no other one gets it.
    issuer: str | None = None
    #: Asked for instead of what the server suggests, separated by spaces.
    scope: str | None = None
    token_endpoint_auth_method: SecretMethod = "client_secret_basic"
    #: Where the metadata of the client are published, for a server that takes this as its id.
    client_metadata_url: str | None = None
    #: Where the browser returns to, if the authorization server insists on a certain address of this machine.
    redirect_uri: str | None = None


def parse_oauth(value: Any) -> OAuthParams:
    """Check the key `oauth`, with or without its placeholders.

    Raises:
        ValueError: Naming what is wrong, never a value, because values may be secret.
    """
    if not isinstance(value, dict):
        raise ValueError("server_params['oauth'] must be a dict")
    given = cast("dict[Any, Any]", value)
    known = [field.name for field in fields(OAuthParams)]
    if unknown := [str(key) for key in given if key not in known]:
        raise ValueError(f"server_params['oauth'] has unknown keys {unknown}; known here are {known}")
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
    """Tell whether nobody else reads what is sent to a URL: it is HTTPS, or stays on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


def _problem(params: OAuthParams) -> str | None:
    secrets = [secret for secret in (params.client_secret, params.private_key) if secret is not None]
    machine = params.grant == "client_credentials"
    if len(secrets) > 1:
        return "has both 'client_secret' and 'private_key'"
    if secrets and not (params.client_id and params.issuer):
        # Without, the MCP server would say who gets the secret.
        return "needs 'client_id' and 'issuer' with a secret: the authorization server that it belongs to"
    if machine and not secrets:
        return "needs 'client_secret' or 'private_key' for 'client_credentials'"
    if params.private_key is not None and not machine:
        return "can have a 'private_key' for 'client_credentials' only"
    if params.client_id is not None and params.client_metadata_url is not None:
        return "has both 'client_id' and 'client_metadata_url'"
    if params.client_metadata_url is not None and not _is_document(params.client_metadata_url):
        return "needs a 'client_metadata_url' that starts with https:// and has a path"
    if params.redirect_uri is not None and not _is_local(params.redirect_uri):
        return "needs a 'redirect_uri' of this machine with a port, such as http://localhost:8765/callback"
    return None


def _is_document(url: str) -> bool:
    return bool(variables(url)) or (urlsplit(url).scheme == "https" and urlsplit(url).path not in ("", "/"))


def _is_local(url: str) -> bool:
    if variables(url):
        return True
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and parts.hostname in _LOOPBACK and parts.port is not None
    except ValueError:  # the port is none
        return False
