"""What hostile code tries on files. Kernels get this module as it is.

Each function gets paths, and returns what it could read; one that writes leaves its mark, and returns nothing of use.
"""

import ctypes
import fcntl
import mmap
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from contextlib import suppress
from glob import glob
from pathlib import Path

from tests.security.attack_tools import SECONDS, checked, first, in_child, libc, output

MARK = "written by hostile code"
#: Processes whose namespaces are tried, at most.
PROCESSES = 20

AT_FDCWD, AT_SYMLINK_FOLLOW, RENAME_EXCHANGE = -100, 0x400, 2
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_BIND, MS_REMOUNT, MS_REC, MS_PRIVATE, MNT_DETACH = 4096, 32, 16384, 1 << 18, 2
HANDLE_BYTES = 128


# --- tools


def read(path: str) -> str:
    return Path(path).read_bytes().decode("latin-1")


def read_bytes_in_hexadecimal(path: str) -> str:
    return Path(path).read_bytes().hex()


def write(path: str) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(MARK)
    return MARK


def own_namespace() -> None:
    """Gets a mount namespace, for an ordinary user together with a user namespace; no mount of it is seen outside."""
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNS) == -1:
        checked(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    arguments = [value if value is None else value.encode() for value in (source, target, kind, options)]
    checked(libc.mount(*arguments[:3], ctypes.c_ulong(flags), arguments[3]), "mount")


def roots() -> list[str]:
    return glob("/proc/[0-9]*/root") + glob("/proc/[0-9]*/task/*/root") + ["/proc/self/root", "/proc/1/root"]


def in_the_namespaces_of_processes(function: Callable[[str], str], path: str) -> str:
    def join(process: str) -> str:
        for kind in ("user", "mnt"):
            with suppress(OSError):
                libc.setns(os.open(f"{process}/ns/{kind}", os.O_RDONLY), 0)
        return function(path)

    return first([lambda process=process: in_child(join, process) for process in glob("/proc/[0-9]*")[:PROCESSES]])


def loader() -> str:
    return (glob("/lib64/ld-linux*.so.*") + glob("/lib/ld-linux*.so.*") + glob("/lib/*/ld-linux*.so.*"))[0]


# --- to read


def read_by_another_spelling(path: str) -> str:
    directory, name = os.path.split(path)
    parent = os.path.basename(directory)
    spellings = (f"/{path}", f"{directory}//./{name}", f"{directory}/../{parent}/{name}", os.path.relpath(path))
    return first([lambda path=path: read(path) for path in (*spellings, f"/proc/self/cwd/{os.path.relpath(path)}")])


def read_through_a_link(path: str, scratch: str) -> str:
    os.symlink(path, f"{scratch}/link")
    return read(f"{scratch}/link")


def read_through_a_link_to_the_directory(path: str, scratch: str) -> str:
    directory, name = os.path.split(path)
    os.symlink(directory, f"{scratch}/directory")
    return read(f"{scratch}/directory/{name}")


def read_through_a_hard_link(path: str, scratch: str) -> str:
    os.link(path, f"{scratch}/hard-link")
    return read(f"{scratch}/hard-link")


def read_through_a_hard_link_to_a_descriptor(path: str, scratch: str) -> str:
    file = os.open(path, os.O_PATH)
    arguments = (AT_FDCWD, f"/proc/self/fd/{file}".encode(), AT_FDCWD, f"{scratch}/hard-link".encode())
    checked(libc.linkat(*arguments, AT_SYMLINK_FOLLOW), "linkat")
    return read(f"{scratch}/hard-link")


def read_by_reopening_a_descriptor(path: str) -> str:
    file = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    return read(f"/proc/self/fd/{file}")


def read_relative_to_a_directory(path: str) -> str:
    directory = os.open(os.path.dirname(path), os.O_PATH)
    with os.fdopen(os.open(os.path.basename(path), os.O_RDONLY, dir_fd=directory)) as file:
        return file.read()


def read_through_the_roots_of_processes(path: str) -> str:
    return first([lambda root=root: read(root + path) for root in roots()])


def read_through_the_directories_of_processes(path: str) -> str:
    up = "/.." * 64
    return first([lambda cwd=cwd: read(cwd + up + path) for cwd in glob("/proc/[0-9]*/cwd")])


def read_through_the_descriptors_of_processes(path: str) -> str:
    """Some process may hold a directory above the masks, or the file itself."""
    held = glob("/proc/[0-9]*/fd/*")
    opened = [lambda link=link: read(f"{link}{'/..' * 64}{path}") for link in held]
    file = os.open(path, os.O_RDONLY)
    return first([*opened, lambda: read(f"/proc/{os.getpid()}/fd/{file}")])


def read_with_a_program_run_by_the_loader(path: str) -> str:
    return output(loader(), shutil.which("cat") or "/bin/cat", path)


def run_by_the_loader(program: str, path: str) -> str:
    return output(loader(), program, path)


def run(program: str, path: str) -> str:
    return output(program, path)


def archive(directory: str) -> str:
    return output("tar", "--ignore-failed-read", "-cf", "-", "-C", directory, ".")


def search(directory: str) -> str:
    return output("grep", "-rsah", "secret", directory)


def read_after_moving_what_holds_it(path: str, directory: str) -> str:
    os.rename(directory, f"{directory}-moved")
    return read(path.replace(directory, f"{directory}-moved"))


def read_after_moving_it(path: str) -> str:
    os.rename(path, f"{path}-moved")
    return read(f"{path}-moved")


def read_after_unmounting(path: str) -> str:
    def attack() -> str:
        with suppress(OSError):
            own_namespace()
        for place in (path, *map(str, Path(path).parents[:-1])):
            libc.umount2(place.encode(), MNT_DETACH)
        return read(path)

    return in_child(attack)


def read_through_a_bind_mount(path: str, scratch: str) -> str:
    def attack() -> str:
        own_namespace()
        directory, name = os.path.split(path)
        mount(directory, scratch, None, MS_BIND)  # without what is mounted below
        return read(f"{scratch}/{name}")

    return in_child(attack)


def read_through_an_overlay(path: str, scratch: str) -> str:
    def attack() -> str:
        own_namespace()
        directory, name = os.path.split(path)
        mount("overlay", scratch, "overlay", 0, f"lowerdir={directory}:{scratch}")
        return read(f"{scratch}/{name}")

    return in_child(attack)


def read_in_the_namespaces_of_processes(path: str) -> str:
    return in_the_namespaces_of_processes(read, path)


def read_in_another_root(path: str) -> str:
    def attack() -> str:
        with suppress(OSError):
            own_namespace()
        checked(libc.chroot(os.path.dirname(path).encode()), "chroot")
        return read(f"/{os.path.basename(path)}")

    return in_child(attack)


def read_by_handle(path: str) -> str:
    handle = (ctypes.c_uint * (2 + HANDLE_BYTES // 4))(HANDLE_BYTES)
    mount_id = ctypes.c_int()
    arguments = (path.encode(), handle, ctypes.byref(mount_id), 0)
    checked(libc.name_to_handle_at(AT_FDCWD, *arguments), "name_to_handle_at")
    beside = os.open(os.path.dirname(path), os.O_RDONLY)
    file = checked(libc.open_by_handle_at(beside, handle, os.O_RDONLY), "open_by_handle_at")
    with os.fdopen(file) as opened:
        return opened.read()


def open_a_disk(path: str, scratch: str) -> str:
    """Opens the disk that holds a file, by a node of its own or one of those that are there."""
    nodes = [node for node in glob("/dev/*") if stat.S_ISBLK(os.stat(node).st_mode)]
    with suppress(OSError):
        os.mknod(f"{scratch}/disk", stat.S_IFBLK | 0o600, os.stat(path).st_dev)
    return first([lambda node=node: opened(node) for node in (f"{scratch}/disk", *nodes)])


def opened(node: str) -> str:
    os.close(os.open(node, os.O_RDONLY))
    return "opened"


# --- to write


def append(path: str) -> str:
    with open(path, "a") as file:
        file.write(MARK)
    return MARK


def truncate(path: str) -> str:
    os.truncate(path, 0)
    return MARK


def remove(path: str) -> str:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
    return MARK


def change_mode(path: str) -> str:
    os.chmod(path, 0o777)
    return MARK


def change_attributes(path: str) -> str:
    os.setxattr(path, "user.mark", MARK.encode())
    return MARK


def replace_by_a_link(path: str, scratch: str) -> str:
    write(f"{scratch}/replacement")
    os.symlink(f"{scratch}/replacement", f"{scratch}/link")
    os.replace(f"{scratch}/link", path)
    return MARK


def make_a_link(path: str, scratch: str) -> str:
    os.symlink(scratch, path)
    return MARK


def exchange(path: str, scratch: str) -> str:
    name = f"{scratch}/exchanged"
    if os.path.isdir(path):
        os.mkdir(name)
        write(f"{name}/mark")
    else:
        write(name)
    arguments = (AT_FDCWD, name.encode(), AT_FDCWD, path.encode(), RENAME_EXCHANGE)
    checked(libc.renameat2(*arguments), "renameat2")
    return MARK


def move_and_make_again(directory: str, path: str) -> str:
    os.rename(directory, f"{directory}-moved")
    return write(path)


def write_through_a_link(path: str, scratch: str) -> str:
    os.symlink(path, f"{scratch}/link")
    return write(f"{scratch}/link")


def write_through_a_link_to_the_directory(path: str, scratch: str) -> str:
    os.symlink(os.path.dirname(path), f"{scratch}/directory")
    return write(f"{scratch}/directory/{os.path.basename(path)}")


def write_through_a_hard_link(path: str, scratch: str) -> str:
    os.link(path, f"{scratch}/hard-link")
    return write(f"{scratch}/hard-link")


def write_through_a_hard_link_made_in_its_place(path: str, scratch: str) -> str:
    write(f"{scratch}/file")
    os.link(f"{scratch}/file", path)
    return MARK


def write_by_reopening_a_descriptor(path: str) -> str:
    file = os.open(path, os.O_RDONLY)
    return write(f"/proc/self/fd/{file}")


def write_by_reopening_a_path_descriptor(path: str) -> str:
    file = os.open(path, os.O_PATH)
    return write(f"/proc/self/fd/{file}")


def write_through_the_roots_of_processes(path: str) -> str:
    return first([lambda root=root: write(root + path) for root in roots()])


def write_with_a_program_run_by_the_loader(path: str) -> str:
    return output(loader(), shutil.which("cp") or "/bin/cp", "-v", "/proc/self/cmdline", path)


def write_after_remounting(path: str) -> str:
    def attack() -> str:
        with suppress(OSError):
            own_namespace()
        for place in (path, *map(str, Path(path).parents)):
            libc.umount2(place.encode(), MNT_DETACH) if place != "/" else None
            libc.mount(None, place.encode(), None, ctypes.c_ulong(MS_REMOUNT | MS_BIND), None)
        return write(path)

    return in_child(attack)


def write_to_a_pipe(path: str) -> str:
    pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(pipe, MARK.encode())
    finally:
        os.close(pipe)
    return MARK


def write_in_the_namespaces_of_processes(path: str) -> str:
    return in_the_namespaces_of_processes(write, path)


def map_and_write(path: str) -> str:
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[0:1] = b"!"
    return MARK


def race_a_link_against_writes(path: str, scratch: str) -> str:
    """Swaps a directory and a link to the outside while it writes below, as a check in user space would lose to."""
    inside, link = f"{scratch}/inside", f"{scratch}/link"
    os.mkdir(inside)
    os.symlink(os.path.dirname(path), link)
    for _ in range(500):
        arguments = (AT_FDCWD, inside.encode(), AT_FDCWD, link.encode(), RENAME_EXCHANGE)
        checked(libc.renameat2(*arguments), "renameat2")
        with suppress(OSError):
            write(f"{inside}/{os.path.basename(path)}")
    return MARK


# --- to make the host's git run something


def git_hook(repository: str, script: str) -> str:
    return _executable(f"{repository}/.git/hooks/post-index-change", script)


def git_config(repository: str, script: str) -> str:
    with open(f"{repository}/.git/config", "a") as file:
        file.write(f"[core]\nfsmonitor = {_script(script, repository)}\n")
    return MARK


def git_common_directory(repository: str, script: str) -> str:
    """A repository with a file `commondir` takes its configuration from there."""
    fake = f"{repository}/fake"
    shutil.copytree(f"{repository}/.git", fake)
    with open(f"{fake}/config", "a") as file:
        file.write(f"[core]\nfsmonitor = {_script(script, repository)}\n")
    Path(f"{repository}/.git/commondir").write_text("../fake\n")
    return MARK


def git_worktree_configuration(repository: str, script: str) -> str:
    path = _script(script, repository)
    Path(f"{repository}/.git/config.worktree").write_text(f"[core]\nfsmonitor = {path}\n")
    with suppress(OSError), open(f"{repository}/.git/config", "a") as file:
        file.write("[extensions]\nworktreeConfig = true\n")
    return MARK


def git_submodule(repository: str, script: str) -> str:
    """A submodule, which needs no more than an entry of the index; status asks each of them with its own settings."""
    module = f"{repository}/module"
    environment = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode != 0:
            raise OSError(done.stderr)
        return done.stdout.strip()

    git("init", "-q", module)
    git("-C", module, "commit", "-q", "--allow-empty", "-m", "x")
    commit = git("-C", module, "rev-parse", "HEAD")
    git("-C", module, "config", "core.fsmonitor", _script(script, repository))
    git("-C", repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},module")
    return MARK


def git_moved_away(repository: str, script: str) -> str:
    shutil.copytree(f"{repository}/.git", f"{repository}/other")
    with open(f"{repository}/other/config", "a") as file:
        file.write(f"[core]\nfsmonitor = {_script(script, repository)}\n")
    os.rename(f"{repository}/.git", f"{repository}/old")
    os.rename(f"{repository}/other", f"{repository}/.git")
    return MARK


def _script(script: str, repository: str) -> str:
    return _executable(f"{repository}/script-{os.urandom(4).hex()}", script)


def _executable(path: str, script: str) -> str:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).write_text(script)
    os.chmod(path, 0o755)
    return path


# --- to make programs of the host run something that start in the workspace


def plant_a_module(workspace: str, name: str, mark: str) -> str:
    """What `python -m` finds before the module that is meant, as it looks in the working directory first."""
    return write_text(f"{workspace}/{name}.py", f"open({mark!r}, 'w').close()\n")


def plant_a_package(workspace: str, name: str, mark: str) -> str:
    write_text(f"{workspace}/{name}/__init__.py", "")
    return write_text(f"{workspace}/{name}/__main__.py", f"open({mark!r}, 'w').close()\n")


def plant_a_standard_module(workspace: str, name: str, mark: str) -> str:
    """What every program imports that looks in the working directory first."""
    code = f"import __main__, sys\n'mcp_server' in repr(sys.orig_argv) and open({mark!r}, 'w').close()\n"
    return write_text(f"{workspace}/asyncio.py", code)


def write_text(path: str, text: str) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return MARK


# --- to keep others from working


def take_the_locks(directory: str) -> str:
    """Whoever holds a lock can keep it for as long as it lives; this gives it back."""
    taken: list[str] = []
    for path in glob(f"{directory}/*.lock"):
        with suppress(OSError), open(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken.append(path)
    if not taken:
        raise OSError("no lock could be taken")
    return f"took {' '.join(taken)}"
