"""A request to install exactly one package, never an option of pip."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_ARCHIVES = (".whl", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
_PATH = re.compile(r"(?P<path>.+?)(?P<extras>\[[\w\s,.-]*\])?")


@dataclass(frozen=True)
class Request:
    """One package to install.

    Attributes:
        text: The package as uv expects it.
        kind: Whether it comes from the index, is a wheel, or may need a build of a local or another source.
        name: Its normalized name, if known.
        url: Its URL, if it has one.
    """

    text: str
    kind: Literal["index", "wheel", "local", "source"]
    name: str | None = None
    url: str | None = None


def parse_request(specifier: str, workspace: Path) -> Request:
    """Returns the request for a specifier; relative paths are relative to the workspace.

    Raises:
        ValueError: If it is not a single package.
    """
    text = specifier.strip()
    text = text if text.isprintable() else ""
    path = _existing_path(text, workspace)
    if path is not None and text.lower().endswith(_ARCHIVES):  # names may end so, too
        return path
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        if path is None and not _URL.fullmatch(text):
            raise ValueError(
                f"{specifier!r} is not a package: give a single name or specifier such as 'numpy>=2', a URL, or an "
                "existing path"
            ) from None
        return path or _from_url(text, text, None)
    name = canonicalize_name(requirement.name)
    if requirement.url is None:
        return Request(str(requirement), "index", name)
    return _from_url(str(requirement), requirement.url, name)


def _existing_path(text: str, workspace: Path) -> Request | None:
    match = _PATH.fullmatch(text)
    if match is None or "://" in text:
        return None
    try:
        path = (workspace / Path(match["path"]).expanduser()).resolve()
        exists = path.exists()
    except (OSError, RuntimeError):  # too long, a loop of links, or the home of an unknown user
        return None
    kind = "wheel" if path.suffix == ".whl" and path.is_file() else "local"
    return Request(f"{path.as_uri()}{match['extras'] or ''}", kind) if exists else None


def _from_url(text: str, url: str, name: str | None) -> Request:
    parts = urlsplit(url)
    is_wheel = parts.scheme in ("http", "https", "file") and parts.path.endswith(".whl")
    return Request(text, "wheel" if is_wheel else "local" if parts.scheme == "file" else "source", name, url)
