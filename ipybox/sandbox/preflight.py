"""Checks whether this machine meets the requirements of the sandbox, and names remedies.

`require_sandbox` only checks files, takes about a millisecond, and runs before every sandboxed start. `diagnose` runs
the programs and creates namespaces, to find problems that files don't show, after a failed start and for
`ipybox doctor`. `transient_cause` recognizes failures of srt that usually don't recur. Standard library only.
"""

import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import cast

from ipybox.sandbox.findings import (
    DOCKER_MODE,
    NODE,
    PROGRAMS,
    Finding,
    Install,
    Version,
    absence,
    as_broken,
    examine,
    find_program,
    parse_version,
    presence,
    version_text,
)
from ipybox.support.errors import SandboxError
from ipybox.support.probe import probe

#: The oldest supported version of srt.
MINIMUM_SRT: Version = (0, 0, 78)

#: Early releases of srt all report this version.
UNVERSIONED_SRT: Version = (1, 0, 0)

#: Directory of srt's seccomp filter, by machine. Without the filter, srt still starts, but lets code connect to the
#: host's unix sockets, such as Docker's or an SSH agent's.
SECCOMP_FILTERS = {"x86_64": "x64", "aarch64": "arm64"}

INSTALL_SRT = Install("@anthropic-ai/sandbox-runtime", ("npm install -g",))
REINSTALL_SRT = replace(INSTALL_SRT, sentence="install it with {} again")
UPDATE_SRT = replace(INSTALL_SRT, package=f"{INSTALL_SRT.package}@latest", sentence="update it with {}")

# srt exits if its own programs take more than a second to listen. It also fails if a file that it hides or protects is
# removed after srt has found it and before bubblewrap mounts it.
# https://github.com/anthropic-experimental/sandbox-runtime

#: Attempts to start something in the sandbox before a failure is considered permanent.
SANDBOX_STARTS = 4

_TOO_LATE = "Failed to create bridge sockets"

#: bubblewrap's message about a missing file or directory to mount.
_REMOVED = re.compile(
    r"bwrap: Can't (?:find source path .*: No such file or directory|"
    r"(?:create file at|mkdir(?: parents for)?) .*: Read-only file system)"
)


def require_sandbox(path: str | None = None) -> Path:
    """Returns the path of srt if all requirements of a sandboxed start are met on a PATH, by default this process's.

    Reads a few files and starts no program, unless srt was not installed by npm: then it runs srt to get its version,
    which blocks for a fraction of a second.

    Raises:
        SandboxError: If something is missing or too old. The message has a line with the remedy for each problem.
    """
    problems = [finding for finding in requirements(path) if finding.problem is not None]
    if problems:
        lines = "".join(f"\n  {finding}" for finding in problems)
        raise SandboxError(f"the sandbox can't start, so no code ran:{lines}")
    return Path(find_program("srt", path) or "srt")


def requirements(path: str | None = None) -> list[Finding]:
    """Returns one finding for each requirement of `require_sandbox`, met or not."""
    programs = PROGRAMS.get(sys.platform)
    if programs is None:
        return [Finding("platform", sys.platform, "the sandbox needs Linux or macOS", DOCKER_MODE)]
    srt, package = _installed(path)
    findings = [_srt(srt, package, path)]
    if srt is None or package is not None:  # other builds of srt may include node
        findings.append(presence(NODE, path))
    findings += [presence(program, path) for program in programs]
    return [*findings, _processor(package)] if sys.platform == "linux" else findings


def srt_programs(path: str | None = None) -> Path | None:
    """Returns the directory of the programs that srt starts in a sandbox; None if srt wasn't installed by npm."""
    _, package = _installed(path)
    return None if package is None else package[0] / "vendor"


def diagnose(path: str | None = None, *, weaker_nested: bool = False, root: Path = Path("/")) -> list[Finding]:
    """Runs the programs, creates namespaces, and returns a finding for each requirement. Blocks.

    `root` contains /proc and files that indicate a container; `weaker_nested` is `enableWeakerNestedSandbox`.
    """
    quick = requirements(path)
    programs = {program.what: program for program in (NODE, *PROGRAMS.get(sys.platform, ()))}
    has_node = all(finding.problem is None for finding in quick if finding.what == NODE.what)

    def deeper(finding: Finding) -> list[Finding]:
        if finding.problem is None and finding.what == "srt" and has_node:
            outcome = probe([str(find_program("srt", path)), "--version"], path=path)
            return [as_broken(finding, "srt", outcome, REINSTALL_SRT) if outcome.failure else finding]
        if finding.problem is not None or finding.what not in programs:
            return [finding]
        examined = examine(programs[finding.what], path)
        if finding.what == "bubblewrap" and examined.problem is None:
            return [examined, *namespace_findings(str(find_program("bwrap", path)), path, weaker_nested, root)]
        return [examined]

    with ThreadPoolExecutor(len(quick)) as pool:
        return [finding for findings in pool.map(deeper, quick) for finding in findings]


def transient_cause(output: str) -> str | None:
    """Returns a clause that says why srt failed with this output, or None if it would fail again."""
    if _TOO_LATE in output:
        return "the machine may be busy"
    if _REMOVED.search(output):
        return "a file that the sandbox hides or protects may have just been removed"
    return None


def _srt(srt: str | None, package: tuple[Path, str] | None, path: str | None) -> Finding:
    if srt is None:
        return Finding("srt", None, absence("srt"), INSTALL_SRT)
    if package is not None:
        version = parse_version(package[1])
    else:
        outcome = probe([srt, "--version"], path=path)
        if outcome.failure:
            return as_broken(Finding("srt", srt), "srt", outcome, REINSTALL_SRT)
        version = parse_version(outcome.output)
        version = None if version == UNVERSIONED_SRT else version
    if version is None:
        return Finding("srt", srt, "srt does not report its version, so it is probably too old", UPDATE_SRT)
    if version < MINIMUM_SRT:
        return Finding("srt", srt, f"srt {version_text(version)} is older than {version_text(MINIMUM_SRT)}", UPDATE_SRT)
    return Finding("srt", f"{version_text(version)} ({srt})")


def _installed(path: str | None) -> tuple[str | None, tuple[Path, str] | None]:
    """Returns the path of srt, and the directory and version of its npm package; None for what there isn't."""
    srt = find_program("srt", path)
    program = Path(os.path.realpath(srt or ""))
    if program.parts[-2:] != ("dist", "cli.js"):
        return srt, None
    directory = program.parents[1]
    try:
        manifest: object = json.loads((directory / "package.json").read_bytes())
    except (OSError, ValueError):
        return srt, None
    version = cast("dict[str, object]", manifest).get("version") if isinstance(manifest, dict) else None
    return srt, (directory, version) if isinstance(version, str) else None


def _processor(package: tuple[Path, str] | None) -> Finding:
    machine = os.uname().machine
    if machine not in SECCOMP_FILTERS:
        return Finding("processor", machine, f"srt can't block unix sockets on {machine}", DOCKER_MODE)
    seccomp = package and package[0] / "vendor" / "seccomp" / SECCOMP_FILTERS[machine] / "apply-seccomp"
    if seccomp is not None and not os.access(seccomp, os.X_OK):
        problem = f"srt is incomplete: {seccomp}, which blocks unix sockets, is missing or not executable"
        return Finding("processor", machine, problem, REINSTALL_SRT)
    return Finding("processor", machine)


_CAP_SETFCAP = 31

#: System settings, the value that forbids namespaces, and one that permits them. Only the first applies to root.
_SETTINGS = (
    ("user.max_user_namespaces", "0", "15000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)

#: Loads a profile for bwrap, in place of Ubuntu's, which denies capabilities to the programs that bwrap starts.
#: https://github.com/anthropic-experimental/sandbox-runtime/issues/74
_LOAD_PROFILE = (
    r"printf '%s\n' 'abi <abi/4.0>,' 'profile bwrap {} flags=(unconfined) {{ userns, }}' > /etc/apparmor.d/bwrap"
    " && apparmor_parser -r /etc/apparmor.d/bwrap"
)


def namespace_findings(bwrap: str, path: str | None, weaker_nested: bool, root: Path) -> list[Finding]:
    """Returns a finding on whether this user can create srt's namespaces, or one for each reason; see `diagnose`."""
    what = "user namespaces"
    wanted = probe(_unshare(bwrap, weaker=weaker_nested), path=path)
    if wanted.failure is None:
        return [Finding(what, "work")]
    found = wanted.failure.removeprefix("exited with 1: ")
    if not weaker_nested and probe(_unshare(bwrap, weaker=True), path=path).failure is None:
        problem = f"the sandbox can't mount its own /proc here, as in an unprivileged container ({found})"
        remedy = (
            'set "enableWeakerNestedSandbox": true in the sandbox config (code then sees outside processes), '
            f"start the container with unmasked system paths, or {DOCKER_MODE}"
        )
        return [Finding(what, found, problem, remedy)]
    reasons = _namespace_reasons(bwrap, root) or [
        (f"this user can't create namespaces ({found})", f"permit unprivileged user namespaces, or {DOCKER_MODE}")
    ]
    return [Finding(what, found, problem, remedy) for problem, remedy in reasons]


def _unshare(bwrap: str, *, weaker: bool) -> list[str]:
    """Returns a command that creates srt's namespaces, and within them those of its seccomp filter, and exits."""
    proc = ["--bind", "/proc", "/proc"] if weaker else ["--proc", "/proc"]
    outer = ["--unshare-user", "--unshare-net", "--unshare-pid", "--ro-bind", "/", "/", "--dev", "/dev", *proc]
    # Root needs this capability to map itself to the inner namespace.
    outer += ["--cap-drop", "ALL", *(["--cap-add", "CAP_SETFCAP"] if _is_root() and _has_setfcap() else [])]
    inner = ["--unshare-user", "--unshare-pid", "--ro-bind", "/", "/"]
    return [bwrap, *outer, "--", bwrap, *inner, "--", "/bin/sh", "-c", ":"]


def _namespace_reasons(bwrap: str, root: Path) -> list[tuple[str, str]]:
    # WSL 2 spells it "microsoft": https://github.com/microsoft/WSL/issues/4555
    if "Microsoft" in (_content(root / "proc" / "sys" / "kernel" / "osrelease") or ""):
        return [("WSL 1 has no user namespaces", "run `wsl --set-version DISTRIBUTION 2` in Windows")]
    reasons: list[tuple[str, str]] = []
    if _is_root() and not _has_setfcap(root):
        reasons.append(("root lacks the capability CAP_SETFCAP here", "grant it, or run ipybox as an ordinary user"))
    for name, forbids, permits in _SETTINGS[: 1 if _is_root() else None]:
        if _content(root / "proc" / "sys" / name.replace(".", "/")) == forbids:
            keep = f"put `{name} = {permits}` in /etc/sysctl.d to keep it"
            remedy = f"run `sysctl -w {name}={permits}` as root, and {keep}"
            if "apparmor" in name:  # which would lift it for all programs
                remedy = f"run `{_LOAD_PROFILE.format(os.path.realpath(bwrap))}` as root"
            problem = f"{name} is {forbids}: this machine doesn't let ordinary users create user namespaces"
            reasons.append((problem, remedy))
    if _in_container(root):
        seccomp = _status(root).get("Seccomp") == "2"
        problem = "this is a container that " + ("filters system calls" if seccomp else "may not create namespaces")
        remedy = (
            "start it with a seccomp profile that permits clone, unshare, mount, umount2 and pivot_root, and with "
            f"unmasked system paths (or enableWeakerNestedSandbox), or {DOCKER_MODE}"
        )
        reasons.append((problem, remedy))
    return reasons


def _in_container(root: Path) -> bool:
    marks = (".dockerenv", "run/.containerenv", "run/systemd/container")
    environment = _content(root / "proc" / "1" / "environ") or ""  # only root can read it
    return any((root / mark).exists() for mark in marks) or "container=" in environment


def _is_root() -> bool:
    return os.geteuid() == 0


def _has_setfcap(root: Path = Path("/")) -> bool:
    """Returns whether a program that root starts gets CAP_SETFCAP; see capabilities(7) on execve."""
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
