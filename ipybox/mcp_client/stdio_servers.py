"""Hardens stdio MCP servers so that they load no program, module or configuration that code can write.

A server runs with the user's permissions. Many programs prefer files in their working directory: Python imports modules
from there, uv builds the project that it finds, npx runs `node_modules/.bin`. So a server starts in the workspace only
if its launcher is known to load nothing from it; all others start in an empty directory. A `cwd` in the
registration, or a sandbox of its own as the command, overrides that.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from shutil import which

from ipybox.mcp_client.params import StdioParams
from ipybox.support.errors import MCPServerError
from ipybox.support.inherited import NETWORK
from ipybox.support.state import empty_directory
from ipybox.workspace.writable import WritablePlaces, host_path, interpreter

#: Configuration that git must not read from a repository, because code can create repositories.
_GIT_CONFIG = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", os.devnull),
    ("core.sshCommand", "ssh"),
    ("core.pager", "cat"),
    ("protocol.ext.allow", "never"),
)

#: Python imports no modules from the working directory (from 3.11 on), uv reads no settings there, and git obeys
#: `_GIT_CONFIG`, whatever a repository configures (git-config(1)).
_ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",
    "UV_NO_CONFIG": "1",
    "GIT_CONFIG_COUNT": str(len(_GIT_CONFIG)),
    **{f"GIT_CONFIG_KEY_{index}": key for index, (key, _) in enumerate(_GIT_CONFIG)},
    **{f"GIT_CONFIG_VALUE_{index}": value for index, (_, value) in enumerate(_GIT_CONFIG)},
}

#: Variables that make npm report each of its requests. Otherwise it reports a failed request only after its last
#: attempt, later than any client waits.
_NPM_VARIABLES = {"npm_config_loglevel": "http"}

#: Programs that run the program in their arguments.
_RUNNERS = frozenset(
    (
        *("python", "node", "deno", "bun", "bunx", "npx", "npm", "yarn", "pnpm", "pnpx", "tsx", "ts-node"),
        *("uv", "uvx", "pipx", "poetry", "hatch", "pdm", "sh", "bash", "dash", "zsh", "fish", "make", "just"),
        *("env", "nice", "timeout", "srt", "java", "ruby", "perl", "php", "go", "cargo", "dotnet"),
    )
)
#: Runners that get the program from a package index.
_PACKAGE_RUNNERS = frozenset(("npx", "uvx"))

#: Options before the program: those without a value, and those with one.
_OPTIONS = {
    "npx": (
        {"-y", "--yes", "--no", "--no-install", "-q", "--quiet", "--offline", "--prefer-offline", "--"},
        {"-p", "--package"},
    ),
    "uvx": (
        {"-q", "--quiet", "--isolated", "--offline", "--no-cache", "-n", "--refresh", "-U", "--upgrade"},
        {"--from", "--with", "-p", "--python"},
    ),
    "node": (set[str](), set[str]()),
}
#: Prefixes of packages that npm gets from a repository, never from a directory: `github:owner/name`.
_NPX_HOSTS = ("github:", "gitlab:", "bitbucket:", "gist:")


def harden_stdio_params(server: StdioParams, places: WritablePlaces) -> StdioParams:
    """Returns parameters with which a server loads nothing that code can write.

    Variables in the registration's `env` take precedence.

    Raises:
        MCPServerError: If code can write the server's program, or relative paths can't work in an empty directory; the
            message says what to change.
    """
    path = server.env.get("PATH") or host_path(places)
    command = _resolved(server.command, path, server.cwd)
    words = [command, *server.args]
    reports = _NPM_VARIABLES if _name(command) in ("npx", "npm") else {}
    env = _inherited(places) | _ENVIRONMENT | reports | {"PATH": path} | server.env
    hardened = replace(server, command=command, env=env)
    if server.cwd is not None:
        return hardened
    if places.confined:
        _check_programs(words, places)
    if _loads_nothing(words, places) or not places.covers(Path.cwd()):
        return hardened
    head, _ = _head(words)
    for index, word in enumerate(map(_value, server.args)):
        is_package = _name(command) in _PACKAGE_RUNNERS and index < head
        if is_package and _name(command) == "npx" and word.startswith(_NPX_HOSTS):
            continue
        if _is_relative(word) or (not is_package and not os.path.isabs(word) and os.path.lexists(word)):
            raise MCPServerError(
                f"{word!r} is relative to the working directory, but {_name(command)} starts in an empty directory: "
                "use an absolute path, or set 'cwd' in server_params (the server can then run programs from there)"
            )
    return replace(hardened, cwd=str(_empty_directory(places)))


def _check_programs(words: Sequence[str], places: WritablePlaces) -> None:
    """Raises an MCPServerError if code can write the program of a command or the programs in its arguments."""
    program, *arguments = words
    if _name(program) == "srt" and arguments[:1] in (["-s"], ["--settings"]):
        words = arguments[2:] or [program]
    command, *arguments = words
    named = arguments[: _head(words)[0]] if _name(command) in _RUNNERS else []
    if _name(command) in _PACKAGE_RUNNERS:
        named = [word for word in named if os.sep in word]
    for path in (program, command, *map(_value, named)):
        if places.covers(path) and os.path.lexists(path):
            raise MCPServerError(
                f"{path} is writable from the kernel, but would run with your permissions: move it elsewhere, "
                "or set 'cwd' in server_params if you accept that"
            )


def named_paths(server: StdioParams) -> list[Path]:
    """Returns the existing files and directories that a command may name."""
    words = [_resolved(server.command, server.env.get("PATH", ""), server.cwd), *map(_value, server.args)]
    paths = (Path(server.cwd or "", word) for word in words)
    return [path for path in paths if os.path.lexists(path)]


def risk(server: StdioParams, places: WritablePlaces) -> str | None:
    """Returns a warning about a registration with a `cwd`; None if code can't exploit it."""
    if server.cwd is None or not places.covers(server.cwd):
        return None
    words = [_resolved(server.command, server.env.get("PATH") or host_path(places), server.cwd), *server.args]
    if _loads_nothing(words, places):
        return None
    return (
        f"{_name(words[0])} starts in {server.cwd}, which cells can write to: programs it runs from there have your "
        "permissions, outside any sandbox"
    )


def _empty_directory(places: WritablePlaces) -> Path:
    """Returns an empty directory with no parent that code can write, because some programs also search the parents."""
    directory = empty_directory()
    return Path("/") if any(map(places.covers, (directory, *directory.parents))) else directory


def _loads_nothing(words: Sequence[str], places: WritablePlaces) -> bool:
    """Returns whether a hardened command is known to load nothing from its working directory."""
    command, *arguments = words
    if os.sep in command and (places.covers(command) or _is_shim(command)):
        return False
    match _name(command):
        case "python":
            count = _python_flags(arguments)
            flags = {*"".join(arguments[:count])}
            if "E" in flags and not flags & {"I", "P"}:  # it ignores PYTHONSAFEPATH
                return False
            first = arguments[count] if count < len(arguments) else ""
            if first not in ("-m", "-c") and not _is_script(first, places):
                return False
            real = os.path.realpath(command)  # PYTHONSAFEPATH has an effect from 3.11 on
            version = re.fullmatch(r"(?:python|pypy)3\.(\d+)t?", os.path.basename(real))
            return real == os.path.realpath(interpreter()) or (version is not None and int(version[1]) >= 11)
        case "node":
            return bool(arguments) and _is_script(arguments[0], places)
        case "uvx":  # with known options, and packages from an index
            head, is_known = _head(words)
            return is_known and not any(map(_is_relative, map(_value, arguments[:head])))
        case "uv" if arguments[:2] == ["tool", "run"]:
            return _loads_nothing(["uvx", *arguments[2:]], places)
        case _:
            return False


def _head(words: Sequence[str]) -> tuple[int, bool]:
    """Returns the number of arguments up to the program of a runner, and whether only known options precede it."""
    command, *arguments = words
    if _name(command) == "python":
        count = _python_flags(arguments)
        if arguments[count : count + 1] in (["-m"], ["-c"]):
            return count + 2, True
        flags, values = {*arguments[:count]}, set[str]()
    elif _name(command) in _OPTIONS:
        flags, values = _OPTIONS[_name(command)]
    else:
        return len(arguments), False
    skip = False
    for index, word in enumerate(arguments):
        if skip or word in flags or word.partition("=")[0] in values:
            skip = not skip and word in values
        else:
            return (len(arguments), False) if word.startswith("-") else (index + 1, True)
    return len(arguments), False


def _is_shim(command: str) -> bool:
    """Returns whether a program is a shim (pyenv, asdf, mise, volta), whose target depends on the working directory."""
    real = os.path.realpath(command)
    if _name(real) != _name(command):
        return True
    try:
        with open(real, "rb") as program:
            return program.read(2) == b"#!"
    except OSError:
        return True


def _is_script(word: str, places: WritablePlaces) -> bool:
    """Returns whether a word is the path of a script that may run."""
    if not places.confined:
        return os.path.isfile(word)
    return os.path.isabs(word) and not places.covers(word)


def _python_flags(arguments: Sequence[str]) -> int:
    """Returns how many flags precede the program that Python runs."""
    return len([*takewhile(re.compile("-[bBdEiIOPqsSuv]+").fullmatch, arguments)])


def _is_relative(word: str) -> bool:
    """Returns whether a word can only be a path that begins in the working directory."""
    is_package = word.startswith("@") and word.count("/") == 1
    return word in (".", "..") or (
        "/" in word and not word.startswith(("/", "-")) and "://" not in word and not is_package
    )


def _value(word: str) -> str:
    """Returns the possible path in an argument: all of it, the value of `--option=value`, or the part after `file:`."""
    word = word.partition("=")[2] if word.startswith("-") and "=" in word else word
    _, _, path = word.rpartition("file:")
    return f"/{path.lstrip('/')}" if path.startswith("//") else path


def _resolved(command: str, path: str, cwd: str | None) -> str:
    """Returns the path of a program, or the unchanged command if the program is not found."""
    if os.sep in command:
        return os.path.abspath(os.path.join(cwd or "", command))
    return which(command, path=path) or command


def _name(command: str) -> str:
    """Returns the name of a program without a version or a suffix, such as `python` for `python3.12`."""
    name = os.path.basename(command).lower().removesuffix(".exe").removesuffix(".cmd")
    return "python" if name.startswith(("python", "pypy")) else name


def _inherited(places: WritablePlaces) -> dict[str, str]:
    """Returns the variables for proxies, certificates, indexes and uv's settings, unless code can write their files."""
    env: dict[str, str] = {}
    for name in NETWORK:
        value = os.environ.get(name)
        if value is not None and not (os.path.lexists(value) and places.covers(value)):
            env[name] = value
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    own = os.environ.get("UV_CONFIG_FILE")  # uv ignores other settings, because of `UV_NO_CONFIG`
    for file in [own] if own else [f"{home}/uv/uv.toml", "/etc/uv/uv.toml"]:
        if os.path.isfile(file) and not places.covers(file):
            return env | {"UV_CONFIG_FILE": file}
    return env
