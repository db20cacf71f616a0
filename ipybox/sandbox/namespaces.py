"""Checks whether srt can create its namespaces on this machine, and finds the reasons if not. For `preflight`."""

import os
from pathlib import Path

from ipybox.sandbox.findings import DOCKER_MODE, Finding
from ipybox.support.probe import probe

_CAP_SETFCAP = 31

#: System settings, the value that forbids namespaces, and one that permits them. Only the first applies to root.
_SETTINGS = (
    ("user.max_user_namespaces", "0", "15000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
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
    reasons = _namespace_reasons(root) or [
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


def _namespace_reasons(root: Path) -> list[tuple[str, str]]:
    reasons: list[tuple[str, str]] = []
    if _is_root() and not _has_setfcap(root):
        reasons.append(("root lacks the capability CAP_SETFCAP here", "grant it, or run ipybox as an ordinary user"))
    for name, forbids, permits in _SETTINGS[: 1 if _is_root() else None]:
        if _content(root / "proc" / "sys" / name.replace(".", "/")) == forbids:
            keep = f"put `{name} = {permits}` in /etc/sysctl.d to keep it"
            remedy = f"run `sysctl -w {name}={permits}` as root, and {keep}"
            if "apparmor" in name:
                remedy += "; or give bwrap an AppArmor profile that grants userns"
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
