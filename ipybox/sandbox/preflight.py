"""What the sandbox needs of this machine, and what to do where that is missing.

There are two depths. `require_sandbox` looks at files only, is a matter of a millisecond and part of every sandboxed
start. `diagnose` runs the programs and makes namespaces, and so sees what files don't tell: it is for a start that has
failed, and for `ipybox doctor`.
"""

import json
import os
import re
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from typing import cast

from ipybox.errors import SandboxError
from ipybox.probe import probe
from ipybox.workspace.programs import dropped_program

Version = tuple[int, ...]

#: The oldest srt whose settings and promises ipybox knows.
MINIMUM_SRT: Version = (0, 0, 78)

#: Early releases of srt say this, whatever they are.
UNTOLD_SRT: Version = (1, 0, 0)

#: Where the container is the sandbox, nothing of this is needed.
DOCKER_MODE = "use ipybox's Docker mode"

#: Command that installs packages, by the name of the program; the first one that is there is used.
INSTALLERS = {
    "apt-get": "apt-get install",
    "dnf": "dnf install",
    "pacman": "pacman -S",
    "zypper": "zypper install",
    "apk": "apk add",
    "brew": "brew install",
}

#: Directory of srt's seccomp filter, by machine. Without the filter srt starts all the same, and lets code reach the
#: host's unix sockets: that of Docker, or of an SSH agent.
SECCOMP_FILTERS = {"x86_64": "x64", "aarch64": "arm64"}

_CAP_SETFCAP = 31


@dataclass(frozen=True)
class Install:
    """A remedy that is a command: what installs one package.

    Attributes:
        package: The name of the package.
        commands: What installs packages, such as `apt-get install`. Several, if it is not known which of them is here.
        sentence: What a person is told; `{}` stands for the commands.
        as_root: Whether only root can do it.
    """

    package: str
    commands: tuple[str, ...]
    sentence: str = "install it with {}"
    as_root: bool = False

    def __str__(self) -> str:
        return self.sentence.format(_command_line(self.commands, [self.package], self.as_root))


#: What a person is told to do, in words or as a command.
Remedy = str | Install

INSTALL_SRT = Install("@anthropic-ai/sandbox-runtime", ("npm install -g",))
REINSTALL_SRT = replace(INSTALL_SRT, sentence="install it with {} again")
UPDATE_SRT = replace(INSTALL_SRT, package=f"{INSTALL_SRT.package}@latest", sentence="update it with {}")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, and if it won't do, why and what to do."""

    what: str
    #: Version, path, or the words of a program that failed; None if there is no such thing.
    found: str | None
    problem: str | None = None
    remedy: Remedy | None = None

    def __str__(self) -> str:
        if self.problem is None:
            return f"{self.what}: {self.found}"
        return self.problem if self.remedy is None else f"{self.problem}: {self.remedy}"


@dataclass(frozen=True)
class Program:
    """A program that must be on PATH, and how it is asked for its version."""

    what: str
    name: str
    #: What installs it, or None if it can't be installed by itself.
    package: str | None
    arguments: tuple[str, ...] = ("--version",)
    minimum: Version | None = None
    #: Said instead of how to install the package.
    remedy: Remedy | None = None


NODE = Program("node", "node", None, minimum=(20, 11, 0), remedy="install Node.js 20.11 or later")

#: What srt runs, by platform. It finds the others by `which`, and starts each command by bash.
PROGRAMS: dict[str, tuple[Program, ...]] = {
    "linux": (
        Program("bubblewrap", "bwrap", "bubblewrap"),
        Program("socat", "socat", "socat", ("-V",)),
        Program("ripgrep", "rg", "ripgrep"),
        Program("bash", "bash", "bash"),
        Program("which", "which", "which", ("sh",)),
    ),
    "darwin": (
        Program("ripgrep", "rg", "ripgrep"),
        Program(
            "sandbox-exec",
            "sandbox-exec",
            None,
            ("-p", "(version 1)(allow default)", "/usr/bin/true"),
            remedy="it is part of macOS: have /usr/bin on PATH, and don't run ipybox in another sandbox",
        ),
    ),
}


def require_sandbox(path: str | None = None) -> Path:
    """Returns where srt is, once everything that a sandboxed start needs is there.

    Reads a few files and starts no program, unless srt was not installed by npm: then only srt itself can tell its
    version, which takes a fraction of a second and blocks.

    Args:
        path: The PATH to search, by default that of this process.

    Raises:
        SandboxError: If something is missing or too old; the message has a line for each, with what to do.
    """
    problems = [finding for finding in requirements(path) if finding.problem is not None]
    if problems:
        lines = "".join(f"\n  {finding}" for finding in problems)
        raise SandboxError(f"the sandbox can't start, and nothing ran without it:{lines}")
    return Path(_found("srt", path) or "srt")


def requirements(path: str | None = None) -> list[Finding]:
    """Returns what `require_sandbox` finds: one entry for each requirement, met or not."""
    programs = PROGRAMS.get(sys.platform)
    if programs is None:
        return [Finding("platform", sys.platform, "the sandbox needs Linux or macOS", DOCKER_MODE)]
    findings = [_srt(path)]
    srt = _found("srt", path)
    if srt is None or _package(srt) is not None:  # any other srt may bring its node with it
        findings.append(_present(NODE, path))
    findings += [_present(program, path) for program in programs]
    if sys.platform == "linux":
        findings.append(_processor(None if srt is None else _package(srt)))
    return findings


def srt_programs(path: str | None = None) -> Path | None:
    """Returns the directory of the programs that srt starts inside a sandbox; None if npm has not installed srt."""
    srt = _found("srt", path)
    package = None if srt is None else _package(srt)
    return None if package is None else package[0] / "vendor"


def diagnose(path: str | None = None, *, weaker_nested: bool = False, root: Path = Path("/")) -> list[Finding]:
    """Returns what is known of each requirement after running the programs and making namespaces; blocks.

    Args:
        path: The PATH to search, by default that of this process.
        weaker_nested: Whether the sandbox is to be started with `enableWeakerNestedSandbox`.
        root: Where /proc and the marks of containers are.
    """
    quick = requirements(path)
    programs = {program.what: program for program in (NODE, *PROGRAMS.get(sys.platform, ()))}

    has_node = all(finding.problem is None for finding in quick if finding.what == NODE.what)

    def deeper(finding: Finding) -> list[Finding]:
        if finding.problem is not None:
            return [finding]
        if finding.what == "srt" and has_node:
            outcome = probe([str(_found("srt", path)), "--version"], path=path)
            return [_broken(finding, "srt", outcome.failure, REINSTALL_SRT) if outcome.failure else finding]
        if finding.what not in programs:
            return [finding]
        examined = examine(programs[finding.what], path)
        if finding.what == "bubblewrap" and examined.problem is None:
            return [examined, *_namespaces(str(_found("bwrap", path)), path, weaker_nested, root)]
        return [examined]

    with ThreadPoolExecutor(len(quick)) as pool:
        return [finding for findings in pool.map(deeper, quick) for finding in findings]


def examine(program: Program, path: str | None = None) -> Finding:
    """Returns what a program says of its version; blocks for `PROBE_TIMEOUT` at most."""
    finding = _present(program, path)
    executable = _found(program.name, path)
    if executable is None:
        return finding
    outcome = probe([executable, *program.arguments], path=path)
    if outcome.failure:
        return _broken(finding, program.name, outcome.failure, program.remedy or "install it again")
    version = _version(outcome.output)
    if version is None:
        return finding
    finding = replace(finding, found=f"{_text(version)} ({executable})")
    if program.minimum and version < program.minimum:
        problem = f"{program.name} {_text(version)} is older than {_text(program.minimum)}"
        return replace(finding, problem=problem, remedy=program.remedy or _install(program.package, path))
    return finding


def together(installs: Iterable[Install]) -> list[str]:
    """Returns what installs all of these, with one command for the packages that the same one installs."""
    packages: dict[tuple[tuple[str, ...], bool], list[str]] = {}
    for install in installs:
        names = packages.setdefault((install.commands, install.as_root), [])
        if install.package not in names:
            names.append(install.package)
    return [_command_line(commands, names, as_root) for (commands, as_root), names in packages.items()]


def _srt(path: str | None) -> Finding:
    srt = _found("srt", path)
    if srt is None:
        return Finding("srt", None, _absence("srt"), INSTALL_SRT)
    package = _package(srt)
    if package is not None:
        version = _version(package[1])
    else:
        outcome = probe([srt, "--version"], path=path)
        if outcome.failure:
            return _broken(Finding("srt", srt), "srt", outcome.failure, REINSTALL_SRT)
        version = _version(outcome.output)
        version = None if version == UNTOLD_SRT else version
    if version is None:
        return Finding("srt", srt, "srt does not tell its version, as releases that are too old", UPDATE_SRT)
    if version < MINIMUM_SRT:
        return Finding("srt", srt, f"srt {_text(version)} is older than {_text(MINIMUM_SRT)}", UPDATE_SRT)
    return Finding("srt", f"{_text(version)} ({srt})")


def _package(srt: str) -> tuple[Path, str] | None:
    """Returns the directory and the version of the npm package whose program this is."""
    program = Path(os.path.realpath(srt))
    if program.parts[-2:] != ("dist", "cli.js"):
        return None
    directory = program.parents[1]
    try:
        manifest: object = json.loads((directory / "package.json").read_bytes())
    except (OSError, ValueError):
        return None
    version = cast("dict[str, object]", manifest).get("version") if isinstance(manifest, dict) else None
    return (directory, version) if isinstance(version, str) else None


def _processor(package: tuple[Path, str] | None) -> Finding:
    machine = os.uname().machine
    if machine not in SECCOMP_FILTERS:
        return Finding("processor", machine, f"srt can't block unix sockets on {machine}", DOCKER_MODE)
    seccomp = package and package[0] / "vendor" / "seccomp" / SECCOMP_FILTERS[machine] / "apply-seccomp"
    if seccomp is not None and not os.access(seccomp, os.X_OK):
        problem = f"srt is not complete: {seccomp}, which blocks unix sockets, is missing or not executable"
        return Finding("processor", machine, problem, REINSTALL_SRT)
    return Finding("processor", machine)


def _present(program: Program, path: str | None) -> Finding:
    executable = _found(program.name, path)
    if executable is None:
        remedy = program.remedy or _install(program.package, path)
        return Finding(program.what, None, _absence(program.name), remedy)
    return Finding(program.what, executable)


def _absence(name: str) -> str:
    dropped = dropped_program(name)
    if dropped is None:
        return f"{name} is not on PATH"
    return f"{name} is only at {dropped}, which code in the kernel can write"


def _broken(finding: Finding, name: str, failure: str, remedy: Remedy) -> Finding:
    return replace(finding, problem=f"{name} is broken, it {failure}", remedy=remedy)


def _found(name: str, path: str | None) -> str | None:
    found = which(name, path=path)
    return None if found is None else os.path.abspath(found)


def _install(package: str | None, path: str | None) -> Remedy:
    if package is None:
        return "install it"
    installers = ["brew"] if sys.platform == "darwin" else list(INSTALLERS)
    present = [name for name in installers if which(name, path=path)][:1]
    commands = tuple(INSTALLERS[name] for name in present or installers[:3])
    return Install(package, commands, as_root=present not in ([], ["brew"]))


def _command_line(commands: Iterable[str], packages: Iterable[str], as_root: bool) -> str:
    alternatives = " or ".join(f"`{' '.join([command, *packages])}`" for command in commands)
    return f"{alternatives} as root" if as_root else alternatives


def _version(text: str) -> Version | None:
    numbers = re.search(r"\d+(\.\d+)+", text)
    return None if numbers is None else tuple(int(number) for number in numbers[0].split("."))


def _text(version: Version) -> str:
    return ".".join(str(number) for number in version)


def _namespaces(bwrap: str, path: str | None, weaker_nested: bool, root: Path) -> list[Finding]:
    """Returns whether this user can make the namespaces that srt makes, and if not, each reason there is."""
    what = "user namespaces"
    wanted = probe(_unshare(bwrap, weaker=weaker_nested), path=path)
    if wanted.failure is None:
        return [Finding(what, "work")]
    found = wanted.failure.removeprefix("exits with 1: ")
    if not weaker_nested and probe(_unshare(bwrap, weaker=True), path=path).failure is None:
        problem = f"a sandbox can't have a /proc of its own here, as in an unprivileged container ({found})"
        remedy = (
            'set "enableWeakerNestedSandbox": true in the sandbox config, which lets code see processes outside, '
            f"start the container with unmasked system paths, or {DOCKER_MODE}"
        )
        return [Finding(what, found, problem, remedy)]
    reasons = _namespace_reasons(root) or [
        (f"this user can't make namespaces ({found})", f"permit unprivileged user namespaces, or {DOCKER_MODE}")
    ]
    return [Finding(what, found, problem, remedy) for problem, remedy in reasons]


def _unshare(bwrap: str, *, weaker: bool) -> list[str]:
    """Returns a command that makes srt's namespaces, and in them those of its seccomp filter, and does nothing."""
    proc = ["--bind", "/proc", "/proc"] if weaker else ["--proc", "/proc"]
    outer = ["--unshare-user", "--unshare-net", "--unshare-pid", "--ro-bind", "/", "/", "--dev", "/dev", *proc]
    # Root can map itself into the inner namespace with this capability only.
    outer += ["--cap-drop", "ALL", *(["--cap-add", "CAP_SETFCAP"] if _is_root() and _has_setfcap() else [])]
    inner = ["--unshare-user", "--unshare-pid", "--ro-bind", "/", "/"]
    return [bwrap, *outer, "--", bwrap, *inner, "--", "/bin/sh", "-c", ":"]


def _namespace_reasons(root: Path) -> list[tuple[str, str]]:
    """Returns what on this machine forbids namespaces, as pairs of problem and remedy."""
    reasons: list[tuple[str, str]] = []
    if _is_root() and not _has_setfcap(root):
        reasons.append(("root lacks the capability CAP_SETFCAP here", "grant it, or run ipybox as an ordinary user"))
    forbidding = {"user.max_user_namespaces": "0"}
    if not _is_root():
        forbidding |= {"kernel.unprivileged_userns_clone": "0", "kernel.apparmor_restrict_unprivileged_userns": "1"}
    permitting = {"0": "1", "1": "0"}
    for name, value in forbidding.items():
        if _content(root / "proc" / "sys" / name.replace(".", "/")) != value:
            continue
        better = "15000" if name == "user.max_user_namespaces" else permitting[value]
        remedy = f"run `sysctl -w {name}={better}` as root, and put `{name} = {better}` in /etc/sysctl.d to keep it"
        if "apparmor" in name:
            remedy += "; or give bwrap an AppArmor profile that grants userns"
        reasons.append((f"{name} is {value}: this machine forbids user namespaces to ordinary users", remedy))
    if _in_container(root):
        seccomp = _status(root).get("Seccomp") == "2"
        problem = "this is a container that " + ("filters system calls" if seccomp else "may not make namespaces")
        remedy = (
            "start it with a seccomp profile that permits clone, unshare, mount, umount2 and pivot_root, and with "
            f"unmasked system paths (or enableWeakerNestedSandbox), or {DOCKER_MODE}"
        )
        reasons.append((problem, remedy))
    return reasons


def _in_container(root: Path) -> bool:
    marks = (".dockerenv", "run/.containerenv", "run/systemd/container")
    environment = _content(root / "proc" / "1" / "environ") or ""  # readable by root only
    return any((root / mark).exists() for mark in marks) or "container=" in environment


def _is_root() -> bool:
    return os.geteuid() == 0


def _has_setfcap(root: Path = Path("/")) -> bool:
    """Whether a program that root starts gets CAP_SETFCAP; see capabilities(7) on execve."""
    status = _status(root)
    sets = (int(status.get(name, "0"), 16) for name in ("CapBnd", "CapInh"))
    return any(bits >> _CAP_SETFCAP & 1 for bits in sets)


def _status(root: Path) -> dict[str, str]:
    lines = (_content(root / "proc" / "self" / "status") or "").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _content(file: Path) -> str | None:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return None
