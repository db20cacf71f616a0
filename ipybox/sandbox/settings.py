"""The settings of the sandbox: profiles, and files in the format of Anthropic's sandbox-runtime (`srt`).

A file replaces the lists that it gives; what it leaves out is as in the default profile. Nothing is ignored: a key
that is not known, a value of the wrong kind or a file that can't be read is an error before anything starts.
https://github.com/anthropic-experimental/sandbox-runtime#configuration
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any, Final, cast

from ipybox.errors import SandboxError

#: Files with secrets, wherever they are in the workspace.
ENV_FILES: Final = "**/.env*"

#: What a host and its port look like, and one that has colons of its own.
_PORT: Final = r"(?::([1-9][0-9]{0,4}))?"
_HOST: Final = re.compile(rf"([^\s:/\[\]]+){_PORT}")
_ADDRESS: Final = re.compile(rf"\[([^\]]+)\]{_PORT}")

#: What holds credentials in a home directory, or the way to them.
CREDENTIALS: Final = (
    *("~/.ssh", "~/.gnupg", "~/.password-store", "~/.local/share/keyrings", "~/Library/Keychains"),
    *("~/.aws", "~/.azure", "~/.config/gcloud", "~/.boto", "~/.s3cfg", "~/.oci", "~/.config/rclone"),
    *("~/.kube", "~/.docker/config.json", "~/.config/containers/auth.json", "~/.terraform.d/credentials.tfrc.json"),
    *("~/.netrc", "~/.git-credentials", "~/.config/git/credentials", "~/.config/gh", "~/.config/glab-cli"),
    *("~/.npmrc", "~/.yarnrc.yml", "~/.pypirc", "~/.pip", "~/.config/pip", "~/.config/uv", "~/.gem/credentials"),
    *("~/.cargo/credentials", "~/.cargo/credentials.toml", "~/.m2/settings.xml", "~/.gradle/gradle.properties"),
    *("~/.claude*", "~/.config/claude", "~/.codex", "~/.gemini", "~/.cache/huggingface/token", "~/.huggingface"),
    *("~/.pgpass", "~/.my.cnf", "~/.databrickscfg", "~/.snowsql", "~/.vault-token", "~/.config/op"),
    *("~/.mozilla", "~/.thunderbird", "~/.config/google-chrome", "~/.config/chromium", "~/Library/Cookies"),
    *("~/.*_history", "~/.local/share/fish/fish_history", "~/.lesshst", "~/.viminfo", "~/.Xauthority"),
    *("/etc/shadow", "/etc/gshadow"),
)


@dataclass(frozen=True, kw_only=True)
class SandboxSettings:
    """What code in the sandbox may do.

    Paths are absolute, begin with `~/`, or are relative to the workspace. `deny_read` and `allow_read` may hold
    globs, which stand for what exists when the sandbox starts.

    Attributes:
        source: Where the settings come from, for messages.
        deny_read: What can't be read.
        allow_read: What can be read although it is below an entry of `deny_read`.
        allow_write: What can be written.
        deny_write: What can't be written although it is below an entry of `allow_write`.
        allowed_domains: Hosts that can be reached, such as `example.org`, `*.example.org` or `example.org:443`.
        denied_domains: Hosts that can't, although an entry of `allowed_domains` covers them.
        allow_local_binding: Whether code can listen on ports, and on macOS reach those of the host. Linux gives the
            sandbox a loopback interface of its own, whatever this says.
        weaker_nested_sandbox: Whether to do without what an unprivileged container does not allow.
        file: The file that they were read from, which the inside must not change.
    """

    source: str
    deny_read: tuple[str, ...] = (ENV_FILES, *CREDENTIALS)
    allow_read: tuple[str, ...] = ()
    allow_write: tuple[str, ...] = (".",)
    deny_write: tuple[str, ...] = ()
    allowed_domains: tuple[str, ...] = ()
    denied_domains: tuple[str, ...] = ()
    allow_local_binding: bool = True
    weaker_nested_sandbox: bool = False
    file: Path | None = None

    @property
    def has_network(self) -> bool:
        """Whether any host can be reached."""
        return bool(self.allowed_domains)

    @property
    def no_proxy(self) -> str:
        """What code reaches by itself, as a value of NO_PROXY: its own loopback, apart from allowed ports of the host.

        srt would add private networks, to which there is no way but its proxy.
        """
        allowed = {domain.rpartition(":")[0] or domain for domain in (*self.allowed_domains, "")}
        return ",".join(name for name in ("localhost", "127.0.0.1", "::1") if name not in allowed)


_DEFAULT = SandboxSettings(source="the default sandbox settings")

#: Settings that are built in, by name.
PROFILES: Final[Mapping[str, SandboxSettings]] = {
    "default": _DEFAULT,
    "workspace": replace(
        _DEFAULT,
        source="the sandbox profile 'workspace'",
        deny_read=("~", *_DEFAULT.deny_read),
        allow_read=(".",),
    ),
}


def load_settings(config: Path | str | None = None, allowed_domains: Sequence[str] = ()) -> SandboxSettings:
    """Returns the settings of a file or of a built-in profile.

    Args:
        config: A file in the format of srt, or the name of a profile: `default` (as is None), or `workspace`, which
            hides the home directory, apart from the workspace and the Python environment.
        allowed_domains: Hosts that can be reached in addition to those of the file or the profile.

    Raises:
        SandboxError: If the file can't be read, or is wrong; the message names the file and the key. If an additional
            host is none.
    """
    try:
        added = _hosts(list(allowed_domains))
    except ValueError as exc:
        raise SandboxError(f"the allowed domains (--allow-domain) must be {exc}") from None
    settings = _load(config)
    if not added:
        return settings
    return replace(settings, allowed_domains=tuple(dict.fromkeys([*settings.allowed_domains, *added])))


def _load(config: Path | str | None) -> SandboxSettings:
    if config is None or isinstance(config, str):
        profile = PROFILES.get(config or "default")
        if profile is not None:
            return profile
    path = Path(cast(Path | str, config))
    return _parse(_read(path), path)


def _read(path: Path) -> dict[str, Any]:
    try:
        content: object = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_unique_keys)
    except FileNotFoundError:
        profiles = " or ".join(repr(name) for name in PROFILES)
        raise SandboxError(
            f"the sandbox settings {path} don't exist: give a file, or one of the profiles {profiles}"
        ) from None
    except OSError as exc:
        raise SandboxError(f"the sandbox settings {path} can't be read: {exc.strerror}") from exc
    except (ValueError, RecursionError) as exc:
        raise SandboxError(f"the sandbox settings {path} are not valid JSON: {exc}") from exc
    if not isinstance(content, dict):
        raise SandboxError(f"the sandbox settings {path} must be a JSON object")
    return cast(dict[str, Any], content)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return content


def _parse(content: dict[str, Any], path: Path) -> SandboxSettings:
    given: dict[str, Any] = {}
    _take(content, "", _KEYS, path, given)
    return replace(_DEFAULT, source=str(path), file=path.resolve(), **given)


def _take(content: dict[str, Any], prefix: str, keys: Mapping[str, Any], path: Path, given: dict[str, Any]) -> None:
    """Moves the values of `content` into `given`, under the names of our own fields."""
    for key, value in content.items():
        name = prefix + key
        known = keys.get(key)
        if known is None:
            raise SandboxError(f"the sandbox settings {path} have an unknown key {name!r}; known here: {_list(keys)}")
        if isinstance(known, Mapping):
            if not isinstance(value, dict):
                raise SandboxError(f"the sandbox settings {path}: {name!r} must be an object")
            section = cast(dict[str, Any], value)
            _take(section, f"{name}.", cast(Mapping[str, Any], known), path, given)
        else:
            field, convert = cast(tuple[str, Callable[[object], object]], known)
            try:
                given[field] = convert(value)
            except ValueError as exc:
                raise SandboxError(f"the sandbox settings {path}: {name!r} must be {exc}") from None


def _list(keys: Iterable[str]) -> str:
    return ", ".join(repr(key) for key in keys)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _strings(value: object) -> tuple[str, ...]:
    items = cast(list[object], value) if isinstance(value, list) else [None]
    if not all(isinstance(item, str) and item and "\0" not in item for item in items):
        raise ValueError("a list of non-empty strings")
    return tuple(map(str, items))


def _hosts(value: object) -> tuple[str, ...]:
    return _each(value, _is_host)


def _denied_hosts(value: object) -> tuple[str, ...]:
    # `*` stands for all of them here.
    return _each(value, lambda entry: _is_host(f"any.host{entry[1:]}" if entry[:2] in ("*", "*:") else entry))


def _each(value: object, is_right: Callable[[str], bool]) -> tuple[str, ...]:
    entries = _strings(value)
    wrong = next((entry for entry in entries if not is_right(entry)), None)
    if wrong is not None:
        raise ValueError(f"a list of hosts, such as 'example.org', '*.example.org' or 'example.org:443', not {wrong!r}")
    return entries


def _is_host(entry: str) -> bool:
    """Whether srt takes an entry for a host; with any other one it would not start."""
    address = _ADDRESS.fullmatch(entry)
    parts = address or _HOST.fullmatch(entry)
    if parts is None or int(parts[2] or 0) > 65535:
        return False
    if address:
        try:
            IPv6Address(address[1])
        except ValueError:
            return False
        return True
    name = parts[1].removeprefix("*.")
    labels = name.split(".")
    return parts[1] == "localhost" or (len(labels) > 1 and all(labels) and "*" not in name)


_KEYS: Final[Mapping[str, Any]] = {
    "enableWeakerNestedSandbox": ("weaker_nested_sandbox", _flag),
    "filesystem": {
        "denyRead": ("deny_read", _strings),
        "allowRead": ("allow_read", _strings),
        "allowWrite": ("allow_write", _strings),
        "denyWrite": ("deny_write", _strings),
    },
    "network": {
        "allowedDomains": ("allowed_domains", _hosts),
        "deniedDomains": ("denied_domains", _denied_hosts),
        "allowLocalBinding": ("allow_local_binding", _flag),
    },
}
