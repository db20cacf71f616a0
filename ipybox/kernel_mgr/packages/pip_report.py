"""What pip reports that it is going to install. Code of a package may have written it."""

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from ipybox.kernel_mgr.packages.pip_failure import PipError
from ipybox.support.safe_directory import open_untrusted

MAX_REPORT_BYTES = 64 << 20


@dataclass(frozen=True)
class Planned:
    """A distribution that pip is going to install, and how to ask for exactly that."""

    name: str
    version: str
    text: str
    requested: bool


def read_untrusted(path: Path) -> bytes:
    """Returns what is in a file that strangers may have written."""
    with open_untrusted(path) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_size > MAX_REPORT_BYTES:
            raise PipError("pip wrote no usable report", offline=False)
        return file.read(MAX_REPORT_BYTES)


def parse_report(content: bytes) -> list[Planned]:
    """Returns what a report of pip has planned.

    Raises:
        PipError: If it is malformed.
    """
    try:
        return [_planned(entry) for entry in json.loads(content)["install"]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as exc:
        raise PipError(f"can't parse pip's report: {exc}", offline=False) from exc


def _planned(entry: dict[str, Any]) -> Planned:
    name, version = str(entry["metadata"]["name"]), str(entry["metadata"]["version"])
    text = f"{name}=={version}"
    if entry["is_direct"]:
        text = pinned_url(entry["download_info"])
    return Planned(canonicalize_name(name, validate=True), version, text, bool(entry["requested"]))


def pinned_url(info: dict[str, Any]) -> str:
    """Returns the URL of what was resolved, as exactly as it is known (PEP 610)."""
    url = str(info["url"])
    if "vcs_info" in info:
        url = f"{info['vcs_info']['vcs']}+{url}@{info['vcs_info']['commit_id']}"
    if "subdirectory" in info:
        url += f"#subdirectory={info['subdirectory']}"
    return url
