"""Sandbox settings: profiles, and files in the format of Anthropic's sandbox-runtime (`srt`).

A file replaces the lists that it contains; all other values come from a profile. An unknown key, a value of the wrong
type, or an unreadable file is an error before anything starts. `load_settings` trusts the file, because the application
names it. On the command line, a file that code can write applies only after a person has agreed to exactly its content
(`ipybox trust`): the hashed bytes are the parsed bytes. Files elsewhere belong to the user (`sandbox_settings`).
https://github.com/anthropic-experimental/sandbox-runtime#configuration
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from ipybox.support.errors import SandboxError
from ipybox.support.names import CREDENTIALS, SECRET_FILES
from ipybox.support.safe_directory import names_below
from ipybox.support.untrusted_paths import real_path
from ipybox.support.way_in import restart, sandbox_file
from ipybox.workspace.trust import SANDBOX_CONFIG, TrustStore, read_untrusted
from ipybox.workspace.writable import WritablePlaces

#: A host and its port, as srt accepts them; it doesn't start with any other.
_LABEL: Final = r"[^\s:/\[\]*.]+"
_HOST: Final = re.compile(
    rf"(?:localhost|(?:\*\.)?{_LABEL}(?:\.{_LABEL})+|\[[0-9A-Fa-f.]*:[0-9A-Fa-f.:]+\])(?::([1-9][0-9]{{0,4}}))?"
)


@dataclass(frozen=True, kw_only=True)
class SandboxSettings:
    """The permissions of code in the sandbox, as set by the user.

    Paths are absolute, start with `~/`, or are relative to the workspace. `deny_read` and `allow_read` may contain
    globs, which match the files that exist when the sandbox starts. In `deny_read`, `$NAME/` at the start of a path
    is a variable of this process, and `**/` followed by names matches these names in upper and lower case.

    Attributes:
        source: The origin of the settings, for messages.
        deny_read: Paths that can't be read.
        allow_read: Paths that can be read although they are below an entry of `deny_read`.
        allow_write: Paths that can be written.
        deny_write: Paths that can't be written although they are below an entry of `allow_write`.
        allowed_domains: Hosts that can be reached, such as `example.org`, `*.example.org` or `example.org:443`.
        denied_domains: Hosts that can't be reached although an entry of `allowed_domains` covers them.
        allow_local_binding: Whether code can listen on ports, and on macOS connect to the host's. On Linux, the
            sandbox always has its own loopback interface.
        weaker_nested_sandbox: Whether to omit features that an unprivileged container doesn't allow.
        file: The file that contains the settings, which the guest must not change.
        untrusted: Whether `file` is ignored because no person trusts it.
        trust: The command that a person runs to trust the file after each change, if ipybox asks for that.
    """

    source: str
    deny_read: tuple[str, ...] = (*SECRET_FILES, *CREDENTIALS)
    allow_read: tuple[str, ...] = ()
    allow_write: tuple[str, ...] = (".",)
    deny_write: tuple[str, ...] = ()
    allowed_domains: tuple[str, ...] = ()
    denied_domains: tuple[str, ...] = ()
    allow_local_binding: bool = True
    weaker_nested_sandbox: bool = False
    file: Path | None = None
    untrusted: bool = False
    trust: str | None = None

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences for the user of a session."""
        if not self.untrusted or self.file is None:
            return ()
        return (
            f"The workspace's {self.file.name} is not trusted: ipybox ignores it. To see and apply it, "
            f"{self.to_apply_changes}.",
        )

    @property
    def place(self) -> str:
        """The file that the user edits, or can create, to change the settings."""
        return sandbox_file() if self.file is None else str(self.file)

    @property
    def to_apply_changes(self) -> str:
        """How the user applies a changed file."""
        return restart() if self.trust is None else f"run `{self.trust}` in a terminal, then {restart()}"

    @property
    def has_network(self) -> bool:
        """Whether the settings allow any host."""
        return bool(self.allowed_domains)

    @property
    def no_proxy(self) -> str:
        """The value of NO_PROXY: the sandbox's own loopback, except for allowed ports of the host.

        srt's own value would include private networks, which can be reached only through its proxy.
        """
        allowed = {domain.rpartition(":")[0] or domain for domain in (*self.allowed_domains, "")}
        return ",".join(name for name in ("localhost", "127.0.0.1", "::1") if name not in allowed)


#: The sandbox settings as a file, the name of a profile, an object, or a function that returns one.
SandboxConfig = Path | str | SandboxSettings | Callable[[], SandboxSettings]

_DEFAULT = SandboxSettings(source="the default sandbox settings")

#: Built-in settings, by name.
PROFILES: Final[Mapping[str, SandboxSettings]] = {
    "default": _DEFAULT,
    "workspace": replace(
        _DEFAULT,
        source="the sandbox profile 'workspace'",
        deny_read=("~", *_DEFAULT.deny_read),
        allow_read=(".",),
    ),
}


def load_settings(config: SandboxConfig | None = None, allowed_domains: Sequence[str] = ()) -> SandboxSettings:
    """Returns the settings of a file, whose content is trusted, or of a built-in profile.

    Args:
        config: A file in the format of srt, or the name of a profile: `default` (also for None), or `workspace`, which
            hides the home directory, except the workspace and the Python environment. Or settings, or a function that
            returns them.
        allowed_domains: Hosts that can be reached in addition to those of the file or the profile.

    Raises:
        SandboxError: If the file can't be read, or it or an additional host is wrong; the message names file and key.
    """
    try:
        added = _hosts(list(allowed_domains))
    except ValueError as exc:
        raise SandboxError(f"the allowed domains (--allow-domain) must be {exc}") from None
    settings = _load(config)
    if not added:
        return settings
    return replace(settings, allowed_domains=tuple(dict.fromkeys([*settings.allowed_domains, *added])))


def optional_settings(
    sandbox: bool, config: SandboxConfig | None, allowed_domains: Sequence[str] = ()
) -> SandboxSettings | None:
    """Returns the settings of `load_settings`, or None without a sandbox; a ValueError for settings without one."""
    if sandbox:
        return load_settings(config, allowed_domains)
    for name, value in {"sandbox_config": config, "allowed_domains": allowed_domains or None}.items():
        if value is not None:
            raise ValueError(f"{name} has no effect while the sandbox is off: pass sandbox=True")
    return None


def _load(config: SandboxConfig | None) -> SandboxSettings:
    if isinstance(config, SandboxSettings):
        return config
    if callable(config):
        return config()
    config = config or "default"
    if isinstance(config, str) and config in PROFILES:
        return PROFILES[config]
    path = Path(config)
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    return parse_settings(data, path, _DEFAULT)


def sandbox_settings(
    store: TrustStore,
    *,
    profile: str = "default",
    allowed_domains: Sequence[str] = (),
    file: Path | None = None,
    discover: bool = False,
    program: Sequence[str] = (),
) -> SandboxSettings:
    """Returns the sandbox settings that the command line requests.

    Args:
        store: The workspace files that a person trusts.
        profile: The user's profile. Keys in a trusted file replace the profile's.
        allowed_domains: Additional hosts that the user allows.
        file: A settings file.
        discover: Whether to use `sandbox-config.json` in the workspace instead.
        program: The program that trusts files, for messages; by default, the current program.

    Raises:
        SandboxError: If the file can't be read, is trusted but invalid, or an allowed host is invalid.
    """
    base = PROFILES[profile]
    own = load_settings(base, allowed_domains)
    workspace = store.workspace
    if discover:
        file = workspace / SANDBOX_CONFIG if os.path.lexists(workspace / SANDBOX_CONFIG) else None
    if file is None:
        return replace(own, trust=store.command(profile, None, program)) if discover else own
    place = untrusted_path(file, own, workspace)
    try:
        data = file.read_bytes() if place is None else read_untrusted(place, workspace)
    except OSError as exc:
        raise _unreadable(place or file, exc) from exc
    if place is None:
        return load_settings(parse_settings(data, file, base), allowed_domains)
    command = store.command(profile, None if place == workspace / SANDBOX_CONFIG else place, program)
    if store.trusts(place, data, profile):
        return replace(load_settings(parse_settings(data, place, base), allowed_domains), trust=command)
    return replace(own, file=place, untrusted=True, trust=command)


def untrusted_path(file: Path, own: SandboxSettings, workspace: Path) -> Path | None:
    """Returns the path to read a file from if code could write or redirect it; None if the file is the user's own."""
    spelled = Path(os.path.abspath(file.expanduser()))
    if not WritablePlaces(workspace, own).covers(spelled):
        return None
    real = Path(real_path(spelled))
    for path in (spelled, real):
        if (names := names_below(path, workspace)) is not None:
            return workspace.joinpath(*names)
    return real


def parse_settings(data: bytes, path: Path, base: SandboxSettings) -> SandboxSettings:
    """Returns a profile's settings, with values replaced by those in a file's content."""
    try:
        content: object = json.loads(data.decode())
    except (ValueError, RecursionError) as exc:
        raise SandboxError(f"the sandbox settings {path} are not valid JSON: {exc}") from exc
    if not isinstance(content, dict):
        raise SandboxError(f"the sandbox settings {path} must be a JSON object")
    given: dict[str, Any] = {}
    _collect(cast(dict[str, Any], content), "", _KEYS, path, given)
    return replace(base, source=str(path), file=Path(real_path(path)), **given)


def _unreadable(path: Path, error: OSError) -> SandboxError:
    if isinstance(error, FileNotFoundError):
        profiles = " or ".join(repr(name) for name in PROFILES)
        return SandboxError(f"the sandbox settings {path} don't exist: pass a file, or one of the profiles {profiles}")
    return SandboxError(f"the sandbox settings {path} can't be read: {error.strerror or error}")


def _collect(content: dict[str, Any], prefix: str, keys: Mapping[str, Any], path: Path, given: dict[str, Any]) -> None:
    """Adds the values in `content` to `given`, under the field names of `SandboxSettings`."""
    for key, value in content.items():
        name = prefix + key
        known = keys.get(key)
        if known is None:
            names = ", ".join(map(repr, keys))
            raise SandboxError(
                f"the sandbox settings {path} contain an unknown key {name!r} (known: {names}): correct or remove it, "
                "even if srt accepts it"
            )
        if isinstance(known, Mapping):
            if not isinstance(value, dict):
                raise SandboxError(f"the sandbox settings {path}: {name!r} must be an object")
            _collect(cast(dict[str, Any], value), f"{name}.", cast(Mapping[str, Any], known), path, given)
        else:
            field, convert = cast(tuple[str, Callable[[object], object]], known)
            try:
                given[field] = convert(value)
            except ValueError as exc:
                raise SandboxError(f"the sandbox settings {path}: {name!r} must be {exc}") from None


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _strings(value: object) -> tuple[str, ...]:
    items = cast(list[object], value) if isinstance(value, list) else [None]
    if not all(isinstance(item, str) and item and "\0" not in item for item in items):
        raise ValueError("a list of non-empty strings")
    return tuple(map(str, items))


def _hosts(value: object, is_right: Callable[[str], bool] | None = None) -> tuple[str, ...]:
    entries = _strings(value)
    if wrong := [entry for entry in entries if not (is_right or _is_host)(entry)]:
        raise ValueError(
            f"a list of hosts, such as 'example.org', '*.example.org' or 'example.org:443', not {wrong[0]!r}"
        )
    return entries


def _denied_hosts(value: object) -> tuple[str, ...]:
    # `*` matches all hosts here.
    return _hosts(value, lambda entry: _is_host(f"any.host{entry[1:]}" if entry[:2] in ("*", "*:") else entry))


def _is_host(entry: str) -> bool:
    found = _HOST.fullmatch(entry)
    return found is not None and int(found[1] or 0) < 1 << 16


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
