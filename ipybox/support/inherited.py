"""The environment variables that ipybox passes on to programs; others may contain the user's keys."""

import os
from collections.abc import Iterable, Mapping
from typing import cast

#: Variables about the user and the system, without secrets.
BASIC = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")

#: Variables for gateways, kernels and builds in a sandbox, without secrets.
SAFE_VARIABLES = (*BASIC, "JUPYTER_RUNTIME_DIR")

#: Proxy settings that curl and most libraries read.
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
ALL_PROXIES = (*PROXIES, "ALL_PROXY", "all_proxy")

#: Certificates that OpenSSL, requests, curl, git and Node trust.
CERTIFICATES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
    "NODE_EXTRA_CA_CERTS",
)

_NPM = ("registry", "cafile", "ca", "proxy", "https_proxy", "noproxy", "strict_ssl", "userconfig", "globalconfig")

#: The package indexes of pip, uv and npm, and the certificates that they trust there.
PACKAGE_INDEXES = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_TRUSTED_HOST", "PIP_CERT"),
    *("PIP_CLIENT_CERT", "PIP_PROXY", "PIP_CONFIG_FILE"),
    *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_OFFLINE"),
    *("UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_HTTP_TIMEOUT", "UV_PYTHON_INSTALL_MIRROR"),
    *(f"npm_config_{name}" for name in _NPM),
    *(f"NPM_CONFIG_{name.upper()}" for name in _NPM),
)

#: Variables with which a program reaches the network like its user.
NETWORK = (*ALL_PROXIES, *CERTIFICATES, *PACKAGE_INDEXES)


def inherited(names: Iterable[str]) -> dict[str, str]:
    """Returns the variables of this process that have these names."""
    return {name: os.environ[name] for name in names if name in os.environ}


def check_environment(name: str, variables: object) -> None:
    """Raises a TypeError or ValueError, without a value, if the argument `name` can't be environment variables."""
    if not isinstance(variables, Mapping):
        raise TypeError(f"{name} must be a dict of environment variables, not {type(variables).__name__}")
    for variable, text in cast("Mapping[object, object]", variables).items():
        if not isinstance(variable, str):
            raise TypeError(f"{name}: {variable!r} must be a str")
        if not isinstance(text, str):
            raise TypeError(f"{name}: the value of {variable} must be a str, not {type(text).__name__}")
        if not variable or "=" in variable or not _possible(variable):
            raise ValueError(f"{name}: {variable!r} is not a valid environment variable name")
        if not _possible(text):
            raise ValueError(f"{name}: the value of {variable} contains a null character or a lone surrogate")


def _possible(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
