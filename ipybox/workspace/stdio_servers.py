"""How stdio MCP servers are started, so that they take no program, module or configuration from what code can write.

A server runs with the rights of the user. Many programs prefer what they find in their working directory to what they
were asked for: Python imports modules from there, uv builds the project that it finds, npx runs `node_modules/.bin`.
So a server starts in the workspace only if its launcher is known to take nothing from it; every other one starts in an
empty directory. Who names a `cwd` in a registration, or runs it in a sandbox of its own, decides otherwise.
"""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from shutil import which

from ipybox.errors import MCPServerError
from ipybox.mcp_params import StdioServer
from ipybox.state import empty_directory
from ipybox.workspace.programs import host_path, interpreter
from ipybox.workspace.writable import WritablePlaces

#: Python imports no modules from the working directory (from 3.11 on), and uv reads no settings there.
_ENVIRONMENT = {"PYTHONSAFEPATH": "1", "UV_NO_CONFIG": "1"}

#: What git must not take from the configuration of a repository, in which code can make one.
_GIT_CONFIG = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.sshCommand": "ssh",
    "core.pager": "cat",
    "protocol.ext.allow": "never",
}

#: Programs that run what their arguments name.
_RUNNERS = frozenset(
    (
        *("python", "node", "deno", "bun", "bunx", "npx", "npm", "yarn", "pnpm", "pnpx", "tsx", "ts-node"),
        *("uv", "uvx", "pipx", "poetry", "hatch", "pdm", "sh", "bash", "dash", "zsh", "fish", "make", "just"),
        *("env", "nice", "timeout", "srt", "java", "ruby", "perl", "php", "go", "cargo", "dotnet"),
    )
)
#: Options of npx and of `uv tool run` in front of what they run: those without a value, and those with one.
_NPX_FLAGS = frozenset(("-y", "--yes", "--no", "--no-install", "-q", "--quiet", "--prefer-offline", "--"))
_NPX_VALUES = frozenset(("-p", "--package"))
_UVX_FLAGS = frozenset(("-q", "--quiet", "--isolated", "--offline", "--no-cache", "-n", "--refresh", "-U", "--upgrade"))
_UVX_VALUES = frozenset(("--from", "--with", "-p", "--python"))

#: Seconds that a Python has to tell its version, and npm where its configuration is.
_QUERY_TIMEOUT = 10.0


def harden(server: StdioServer, places: WritablePlaces) -> StdioServer:
    """Returns how a server is started, so that it takes nothing from what code can write.

    What the registration sets in `env` stays. It may have to ask Python or npm, so it can take a second.

    Args:
        server: The server, as it was registered.
        places: The places that code can write.

    Raises:
        MCPServerError: If the server lies in such a place, or its arguments lead nowhere from an empty directory; the
            message says what to change.
    """
    path = server.env.get("PATH") or host_path(places)
    command = _resolved(server.command, path, server.cwd)
    words = [command, *server.args]
    env = _ENVIRONMENT | _git_environment() | {"PATH": path} | server.env
    hardened = replace(server, command=command, args=_with_prefix(words, env, places)[1:], env=env)
    if server.cwd is not None or _takes_nothing(words, places):
        return hardened
    if places.confined:
        _refuse_own_code(words, places)
    if not places.covers(Path.cwd()):
        return hardened
    for word in map(_value, server.args):
        if _is_relative(word) or (not os.path.isabs(word) and os.path.lexists(word)):
            raise MCPServerError(
                f"{word!r} is relative to the working directory, but {_name(command)} starts in an empty one: give an "
                "absolute path, or name a 'cwd' in server_params, from which the server may then run programs"
            )
    return replace(hardened, cwd=str(_empty_directory(places)))


def _with_prefix(words: list[str], env: dict[str, str], places: WritablePlaces) -> list[str]:
    """Has npx run no program of `node_modules`, and obey no `.npmrc`, of the working directory.

    For npm, another prefix means another global configuration, too, which would leave out the registry and the
    certificates of a company: so npm is told where its own is.
    """
    for index, word in enumerate(words):
        if _name(word) in ("npx", "npm"):
            # What it imports takes long, and is there only where servers are started.
            from mcp.client.stdio import get_default_environment

            empty = str(_empty_directory(places))
            config = _npm_config(_resolved("npm", env["PATH"], None), empty, **get_default_environment() | env)
            options = [f"--prefix={empty}", *([f"--globalconfig={config}"] if config else ())]
            return [*words[: index + 1], *options, *words[index + 1 :]]
    return words


@lru_cache(maxsize=8)
def _npm_config(npm: str, cwd: str, **env: str) -> str | None:
    """Returns the path of npm's global configuration, whether it exists or not; None if npm does not tell."""
    try:
        done = subprocess.run(
            [npm, "config", "get", "globalconfig"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=cwd,
            env=env,
            timeout=_QUERY_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _refuse_own_code(words: Sequence[str], places: WritablePlaces) -> None:
    """Makes sure that a command is no program that code can write, and runs none that its arguments name.

    Raises:
        MCPServerError: If it does.
    """
    command, *arguments = words
    for path in (command, *(map(_value, arguments) if _name(command) in _RUNNERS else ())):
        if places.covers(path) and os.path.lexists(path):
            raise MCPServerError(
                f"{path} lies where code in the kernel can write, and would run with your rights: move it elsewhere, "
                "or name a 'cwd' in server_params if you accept that"
            )


def risk(server: StdioServer, places: WritablePlaces) -> str | None:
    """Returns what a person should know of a registration that names a `cwd`; None if code can do nothing with it."""
    if server.cwd is None or not places.covers(server.cwd):
        return None
    words = [_resolved(server.command, server.env.get("PATH") or host_path(places), server.cwd), *server.args]
    if _takes_nothing(words, places):
        return None
    return (
        f"{_name(words[0])} starts in {server.cwd}, which code can write: what it runs or reads there runs with your "
        "rights, outside of any sandbox"
    )


def _empty_directory(places: WritablePlaces) -> Path:
    """Returns an empty directory with no parent that code can write, as some programs search the parents, too."""
    directory = empty_directory()
    return Path("/") if places.covers(directory) else directory


def _takes_nothing(words: Sequence[str], places: WritablePlaces) -> bool:
    """Whether a command is known to take nothing from its working directory, given the environment of `harden`."""
    command, *arguments = words
    if os.sep in command and places.covers(command):
        return False
    match _name(command):
        case "python":
            return _python_is_safe(command, arguments, places)
        case "node":
            return bool(arguments) and _is_script(arguments[0], places)
        case "npx":
            return _runs_a_package(arguments, _NPX_FLAGS, _NPX_VALUES)
        case "uvx":
            return _runs_a_package(arguments, _UVX_FLAGS, _UVX_VALUES)
        case "uv":
            return arguments[:2] == ["tool", "run"] and _runs_a_package(arguments[2:], _UVX_FLAGS, _UVX_VALUES)
        case "srt" if arguments[:1] in (["-s"], ["--settings"]) and len(arguments) > 2:
            return _takes_nothing(arguments[2:], places)
        case _:
            return False


def _python_is_safe(command: str, arguments: Sequence[str], places: WritablePlaces) -> bool:
    index = next((index for index, word in enumerate(arguments) if not _is_python_flag(word)), len(arguments))
    first = arguments[index] if index < len(arguments) else ""
    return (first in ("-m", "-c") or _is_script(first, places)) and _has_safe_path(command)


def _is_script(word: str, places: WritablePlaces) -> bool:
    """Whether a word is the path of a script that may run."""
    if not places.confined:
        return os.path.isfile(word)
    return os.path.isabs(word) and not places.covers(word)


def _is_python_flag(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and set(word[1:]) <= set("bBdEiIOPqsSuv")


@cache
def _has_safe_path(python: str) -> bool:
    """Whether a Python obeys PYTHONSAFEPATH, as 3.11 and later do."""
    if os.path.realpath(python) == os.path.realpath(interpreter()):
        return True
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", check],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_QUERY_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _runs_a_package(arguments: Sequence[str], flags: frozenset[str], values: frozenset[str]) -> bool:
    """Whether these arguments of npx or uvx begin with known options and packages of an index."""
    words = iter(arguments)
    for word in words:
        option, _, value = word.partition("=")
        if word in flags:
            continue
        if option not in values:
            return not word.startswith("-") and not _is_relative(word)
        if _is_relative(value or next(words, ".")):
            return False
    return False


def _is_relative(word: str) -> bool:
    """Whether a word can only be a path that begins in the working directory."""
    is_package = word.startswith("@") and word.count("/") == 1
    return word in (".", "..") or (
        "/" in word and not word.startswith(("/", "-")) and "://" not in word and not is_package
    )


def _value(word: str) -> str:
    """Returns what may be a path in an argument: all of it, or the value of `--option=value`."""
    return word.partition("=")[2] if word.startswith("-") and "=" in word else word


def _resolved(command: str, path: str, cwd: str | None) -> str:
    """Returns the path of a program, or the command as it is if there is no such program."""
    if os.sep in command:
        return os.path.abspath(os.path.join(cwd or "", command))
    return which(command, path=path) or command


def _name(command: str) -> str:
    """Returns the name of a program without a version or a suffix, such as `python` for `python3.12`."""
    name = os.path.basename(command).lower().removesuffix(".exe").removesuffix(".cmd")
    return "python" if name.startswith(("python", "pypy")) else name


def _git_environment() -> dict[str, str]:
    """Returns variables by which git obeys `_GIT_CONFIG`, whatever a repository says (git-config(1))."""
    env = {"GIT_CONFIG_COUNT": str(len(_GIT_CONFIG))}
    for index, (key, value) in enumerate(_GIT_CONFIG.items()):
        env |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return env
