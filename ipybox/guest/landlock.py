"""Restricts where sandboxed code on Linux can open files for writing, in addition to the sandbox's mounts.

Even on a read-only mount, code can open an existing named pipe for writing, and so reach the host program that reads
it. Landlock checks only paths: pipes, sockets and memfds without one are not restricted.

It also closes /proc, where code could change the settings of other processes, such as oom_score_adj. For a root user,
bubblewrap leaves even /proc/sys writable: settings such as core_pattern name programs that the operating system runs
outside of any sandbox.

Like `ipybox.guest.confine`, it needs no privileges, can't be removed, and children inherit it. See landlock(7).
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Sequence

from ipybox.guest.confine import prctl, system_call

#: System calls, whose numbers are the same on all machines.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
CREATE_RULESET_VERSION, RULE_PATH_BENEATH = 1, 1
PR_GET_NO_NEW_PRIVS = 39
#: Rights (LANDLOCK_ACCESS_FS_…): to open for writing, to rename or link into another directory, to truncate by path.
WRITE_FILE, REFER, TRUNCATE = 1 << 1, 1 << 13, 1 << 14
#: Blocks abstract unix sockets of processes outside this domain, and signals to these processes.
SCOPES = 1 << 0 | 1 << 1
#: The Landlock versions that introduced REFER, TRUNCATE and scopes, in Linux 5.19, 6.2 and 6.12.
ABI_REFER, ABI_TRUNCATE, ABI_SCOPES = 2, 3, 6

#: What every program may write: devices, terminals and shared memory, all of them the sandbox's own. /dev/fd leads to
#: /proc, but Landlock then checks the path of the open file.
DEVICES = "/dev"


def restrict_writes(writable: Sequence[str]) -> bool:
    """Lets this process and its children open only these paths, and devices, for writing.

    Paths that don't exist, or are mounted read-only, are skipped. Call `confine()` first.

    Returns:
        Whether the process is restricted; False without Landlock, or with version 1, which would keep files from being
        moved between directories.

    Raises:
        OSError: If it fails. The process must not go on to run untrusted code.
    """
    abi = _version()
    rights = WRITE_FILE | (TRUNCATE if abi >= ABI_TRUNCATE else 0)
    return _enter_domain(abi, rights, (DEVICES, *writable))


def is_available() -> bool:
    """Returns whether the operating system has a version of Landlock with which `restrict_writes` works."""
    return sys.platform == "linux" and _version() >= ABI_REFER


def isolate_process() -> bool:
    """Keeps this process and its children from reading the memory, environment or descriptors of other processes, and
    from sending them signals.

    Does nothing without `no_new_privs`, which a sandbox sets: programs such as sudo would stop working.

    Returns:
        Whether the process is isolated; False also without Landlock, or with version 1.

    Raises:
        OSError: If it fails. The process must not go on to run untrusted code.
    """
    if sys.platform != "linux" or prctl("ask for no_new_privs", PR_GET_NO_NEW_PRIVS) != 1:
        return False
    return _enter_domain(_version(), 0, ())


def _version() -> int:
    # A container's filter may deny calls that it does not know.
    absent = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
    return system_call("ask for Landlock", CREATE_RULESET, 0, 0, CREATE_RULESET_VERSION, tolerated=absent)


def _enter_domain(abi: int, rights: int, paths: Sequence[str]) -> bool:
    """Restricts rights to some paths; Landlock also protects processes outside of the new domain from those inside."""
    if abi < ABI_REFER:
        return False
    if len(threads := os.listdir("/proc/self/task")) > 1:
        raise OSError(errno.EBUSY, f"can't use Landlock: the process has {len(threads)} threads instead of one")

    scopes = SCOPES if abi >= ABI_SCOPES else 0
    # Older versions accept the longer structure if the unknown fields are zero.
    attributes = ctypes.create_string_buffer(struct.pack("=QQQ", rights | REFER, 0, scopes), 24)
    ruleset = system_call("make a ruleset", CREATE_RULESET, ctypes.addressof(attributes), len(attributes), 0)
    try:
        _allow(ruleset, "/", REFER)  # which Landlock denies unless a rule allows it
        for path in paths:
            _allow(ruleset, path, rights)
        system_call("enter the domain", RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return True


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # code in this process can't open it either
        return
    try:
        if rights == REFER or not os.fstatvfs(file).f_flag & os.ST_RDONLY:
            rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, file), 12)
            system_call(f"allow {path}", ADD_RULE, ruleset, RULE_PATH_BENEATH, ctypes.addressof(rule), 0)
    finally:
        os.close(file)
