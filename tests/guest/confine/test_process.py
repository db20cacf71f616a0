"""What confined processes can't do any more, and what they still can, tried for real."""

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.guest.child import DONE, ROOT, USERS
from tests.guest.confine.child import ConfinedChild
from tests.guest.confine.in_child import (
    X86,
    ordinary_asyncio,
    ordinary_compiler,
    ordinary_curl,
    ordinary_database,
    ordinary_git,
    ordinary_limits_of_another_process_to_read,
    ordinary_listing,
    ordinary_locks,
    ordinary_matplotlib,
    ordinary_modes,
    ordinary_name_resolution,
    ordinary_netlink,
    ordinary_node,
    ordinary_numpy,
    ordinary_pandas,
    ordinary_pool_of_forked_processes,
    ordinary_pool_of_spawned_processes,
    ordinary_posix_spawn,
    ordinary_routes,
    ordinary_settings_of_its_own,
    ordinary_shared_memory_and_semaphores,
    ordinary_socket_pairs,
    ordinary_subprocess_by_fork,
    ordinary_subprocess_by_vfork,
    ordinary_terminals,
    ordinary_threads,
    ordinary_zmq,
    probe_a_32_bit_system_call,
    probe_a_bpf_map,
    probe_a_handle_of_a_file,
    probe_a_lease_that_delays_readers,
    probe_a_lease_that_delays_writers,
    probe_a_lease_with_other_high_bits,
    probe_a_packet_socket,
    probe_a_setuid_program,
    probe_a_setuid_program_by_its_descriptor,
    probe_a_setuid_program_by_the_newest_call,
    probe_a_setuid_program_in_a_directory,
    probe_a_socket_of_the_kernels_cryptography,
    probe_a_socket_to_the_host_of_a_virtual_machine,
    probe_a_socket_to_the_host_of_a_virtual_machine_with_other_high_bits,
    probe_a_unix_socket,
    probe_a_unix_socket_with_other_high_bits,
    probe_adding_a_key,
    probe_an_x32_number,
    probe_attributes_of_another_process,
    probe_chroot,
    probe_clone3,
    probe_clone_into_a_user_namespace,
    probe_clone_into_a_user_namespace_with_other_high_bits,
    probe_comparing_descriptors,
    probe_fanotify,
    probe_fsopen,
    probe_io_uring,
    probe_joining_a_namespace,
    probe_limits_of_another_process,
    probe_limits_of_another_process_at_an_address_with_high_bits_only,
    probe_mounting_a_file_system,
    probe_open_tree,
    probe_pasting_into_a_console,
    probe_perf_events,
    probe_policy_of_another_process,
    probe_priority_of_all_processes_of_the_user,
    probe_priority_of_another_group,
    probe_priority_of_another_process,
    probe_priority_of_disks_of_all_processes_of_the_user,
    probe_priority_of_disks_of_another_process,
    probe_processors_of_another_process,
    probe_ptrace_of_an_own_child,
    probe_reading_memory_of_a_child,
    probe_reading_the_log_of_the_machine,
    probe_requesting_a_key,
    probe_taking_a_descriptor,
    probe_the_keyring_of_the_user,
    probe_typing_into_a_terminal,
    probe_typing_into_a_terminal_with_other_high_bits,
    probe_unshare_of_the_user_namespace,
    probe_userfaultfd,
    probe_writing_memory_of_a_child,
)

EPERM = "EPERM"


@dataclass(frozen=True)
class Probe:
    """What a confined process is refused, and how it ends where nothing is confined."""

    function: Callable[[], None]
    free: tuple[str, ...] = (DONE,)
    confined: tuple[str, ...] = (EPERM,)
    #: The control needs a root user.
    privileged: bool = False

    @property
    def name(self) -> str:
        return self.function.__name__


#: What the kernel at hand may lack.
UNKNOWN, NO_FAMILY = (DONE, "ENOSYS"), (DONE, "EAFNOSUPPORT")
#: TIOCSTI works for privileged users only, if dev.tty.legacy_tiocsti says so.
TYPED = (DONE, "EIO")

X86_PROBES = [
    Probe(probe_an_x32_number, free=UNKNOWN, confined=(EPERM, "SIGSYS")),  # the filter of srt ends the process
    Probe(probe_a_32_bit_system_call, confined=("SIGSYS",)),
]
PROBES = [
    Probe(probe_ptrace_of_an_own_child),
    Probe(probe_reading_memory_of_a_child),
    Probe(probe_writing_memory_of_a_child),
    Probe(probe_taking_a_descriptor),
    Probe(probe_comparing_descriptors, free=UNKNOWN),
    Probe(probe_the_keyring_of_the_user),
    Probe(probe_adding_a_key),
    Probe(probe_requesting_a_key, free=("ENOKEY",)),
    Probe(probe_unshare_of_the_user_namespace),
    Probe(probe_clone_into_a_user_namespace),
    Probe(probe_clone_into_a_user_namespace_with_other_high_bits),
    Probe(probe_clone3, confined=("ENOSYS",)),
    Probe(probe_joining_a_namespace),
    Probe(probe_mounting_a_file_system),
    Probe(probe_chroot),
    Probe(probe_open_tree),
    Probe(probe_fsopen),
    Probe(probe_a_handle_of_a_file, free=("EOVERFLOW", "EOPNOTSUPP")),
    Probe(probe_a_bpf_map, privileged=True),
    Probe(probe_perf_events, free=("EFAULT",), privileged=True),
    Probe(probe_userfaultfd, free=UNKNOWN),
    Probe(probe_fanotify, free=UNKNOWN),
    Probe(probe_io_uring, free=UNKNOWN, privileged=True),
    Probe(probe_reading_the_log_of_the_machine, privileged=True),
    Probe(probe_a_packet_socket, free=NO_FAMILY),
    Probe(probe_a_socket_to_the_host_of_a_virtual_machine, free=NO_FAMILY),
    Probe(probe_a_socket_to_the_host_of_a_virtual_machine_with_other_high_bits, free=NO_FAMILY),
    Probe(probe_a_socket_of_the_kernels_cryptography, free=NO_FAMILY),
    Probe(probe_a_unix_socket),
    Probe(probe_a_unix_socket_with_other_high_bits),
    Probe(probe_a_lease_that_delays_readers),
    Probe(probe_a_lease_that_delays_writers),
    Probe(probe_a_lease_with_other_high_bits),
    Probe(probe_a_setuid_program),
    Probe(probe_a_setuid_program_by_its_descriptor),
    Probe(probe_a_setuid_program_in_a_directory),
    Probe(probe_a_setuid_program_by_the_newest_call, free=UNKNOWN),
    Probe(probe_limits_of_another_process),
    Probe(probe_limits_of_another_process_at_an_address_with_high_bits_only),
    Probe(probe_priority_of_another_process),
    Probe(probe_priority_of_another_group),
    Probe(probe_priority_of_all_processes_of_the_user, free=("ESRCH",)),
    Probe(probe_priority_of_disks_of_another_process),
    Probe(probe_priority_of_disks_of_all_processes_of_the_user, free=("ESRCH",)),
    Probe(probe_processors_of_another_process),
    Probe(probe_policy_of_another_process),
    Probe(probe_attributes_of_another_process),
    Probe(probe_typing_into_a_terminal, free=TYPED),
    Probe(probe_typing_into_a_terminal_with_other_high_bits, free=TYPED),
    Probe(probe_pasting_into_a_console, free=("ENOTTY",)),
    *(X86_PROBES if X86 else []),
]

#: What needs no more than Python, and programs that are there for all users.
ORDINARY: list[Callable[[], None]] = [
    ordinary_threads,
    ordinary_subprocess_by_vfork,
    ordinary_subprocess_by_fork,
    ordinary_posix_spawn,
    ordinary_pool_of_forked_processes,
    ordinary_pool_of_spawned_processes,
    ordinary_shared_memory_and_semaphores,
    ordinary_asyncio,
    ordinary_name_resolution,
    ordinary_netlink,
    ordinary_socket_pairs,
    ordinary_settings_of_its_own,
    ordinary_modes,
    ordinary_locks,
    ordinary_limits_of_another_process_to_read,
    ordinary_terminals,
    ordinary_database,
    ordinary_listing,
    ordinary_git,
    ordinary_node,
    *([ordinary_curl] if shutil.which("curl") else []),
    *([ordinary_compiler] if shutil.which("gcc") else []),
    *([ordinary_routes] if shutil.which("ip") else []),
]
#: What is installed beside ipybox.
PACKAGES = [ordinary_zmq, ordinary_numpy, ordinary_pandas, ordinary_matplotlib]

ids = [probe.name for probe in PROBES]


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.sandbox)], ids=["bare", "in_srt"])
def in_srt(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(scope="module", params=USERS)
def child(request: pytest.FixtureRequest, in_srt: bool) -> ConfinedChild:
    return ConfinedChild(request.param, in_srt=in_srt)


@pytest.fixture(scope="module")
def refused(child: ConfinedChild) -> Mapping[str, str]:
    return child.outcomes([probe.function for probe in PROBES])


@pytest.fixture(scope="module")
def free() -> Mapping[str, str]:
    return ConfinedChild(USERS[0], in_srt=False).outcomes([probe.function for probe in PROBES], enforced=False)


@pytest.fixture(scope="module")
def working(child: ConfinedChild) -> Mapping[str, str]:
    return child.outcomes(ORDINARY)


@pytest.fixture(scope="module")
def working_packages(in_srt: bool) -> Mapping[str, str]:
    return ConfinedChild(USERS[0], in_srt=in_srt).outcomes(list(PACKAGES))


@pytest.mark.parametrize("probe", PROBES, ids=ids)
def test_a_confined_process_is_refused(refused: Mapping[str, str], probe: Probe):
    assert refused[probe.name] in probe.confined


@pytest.mark.parametrize("probe", [p for p in PROBES if ROOT or not p.privileged], ids=lambda p: p.name)
def test_the_same_works_where_nothing_is_confined(free: Mapping[str, str], probe: Probe):
    assert free[probe.name] in probe.free


@pytest.mark.parametrize("function", ORDINARY, ids=lambda f: f.__name__)
def test_ordinary_things_work(working: Mapping[str, str], function: Callable[[], None]):
    assert working[function.__name__] == DONE


@pytest.mark.parametrize("function", PACKAGES, ids=lambda f: f.__name__)
def test_packages_work(working_packages: Mapping[str, str], function: Callable[[], None]):
    assert working_packages[function.__name__] == DONE


def test_programs_that_a_confined_process_starts_have_no_capabilities_and_gain_none(child: ConfinedChild):
    status = child.run("confine.confine(); print(run('cat', '/proc/self/status'))")

    fields = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    assert {fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")


def test_the_bounding_set_of_a_root_user_is_empty():
    bounding = r"print(re.search(r'CapBnd:\s+(\w+)', Path('/proc/self/status').read_text())[1])"
    outputs = [ConfinedChild(user, in_srt=False).run(f"confine.confine(); {bounding}").strip() for user in USERS]

    assert outputs[:-1] == ["0" * 16] * ROOT


def test_keys_of_the_session_are_out_of_reach(child: ConfinedChild):
    # A key with these permissions shows only to those who possess it, here by their session keyring.
    code = """
    system_call("keyctl", 1, 0)  # KEYCTL_JOIN_SESSION_KEYRING
    key = system_call("add_key", address(b"user\\0"), address(b"ipybox-test\\0"), address(b"x"), 1, -3)
    system_call("keyctl", 5, key, 0x3F000000)  # KEYCTL_SETPERM
    print("ipybox-test" in Path("/proc/keys").read_text())
    confine.confine()
    print("ipybox-test" in Path("/proc/keys").read_text())
"""
    assert child.run(code.strip()).split() == ["True", "False"]


def test_confining_twice_is_allowed(child: ConfinedChild):
    assert child.run("confine.confine(); confine.confine(); print('still here')") == "still here\n"


@pytest.mark.parametrize("what", ["mem", "environ", "maps", "fd/0", "root/"])
def test_a_protected_process_is_closed_to_its_children(child: ConfinedChild, what: str):
    protected = child.run(f"confine.confine(); confine.protect_process(); print(a_child_opens({what!r}))")
    exposed = child.run(f"confine.confine(); print(a_child_opens({what!r}))")

    assert protected.strip() in ("EPERM", "EACCES")
    # Where Yama restricts ptrace, memory of a parent is closed anyway.
    assert exposed.strip() == DONE or (what == "mem" and Path("/proc/sys/kernel/yama/ptrace_scope").exists())


def test_a_program_that_a_protected_process_starts_is_not_protected_itself(child: ConfinedChild):
    code = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE
    assert child.run(f"confine.protect_process(); print(run(sys.executable, '-c', {code!r}))").strip() == "1"


@pytest.mark.parametrize("user", USERS)
@pytest.mark.sandbox
def test_no_other_process_in_srt_can_be_opened(user: str):
    other = "other_processes_that_can_be_opened"
    code = f"confine.confine(); confine.protect_process(); print(outcomes.outcome({other}))"

    assert ConfinedChild(user, in_srt=True).run(code).strip() == "AssertionError:"


def test_a_thread_that_runs_already_gets_the_filter_or_stops_everything(child: ConfinedChild):
    code = """
    import errno

    started, go = threading.Event(), threading.Event()
    def thread():
        started.set()
        go.wait(30)
        try:
            system_call("keyctl", 0, -4, 1)
        except OSError as error:
            print(errno.errorcode[error.errno])
    running = threading.Thread(target=thread)
    running.start()
    started.wait(30)
    try:
        confine.confine()
        print("confined")
    except OSError as error:
        print(error.strerror)
    go.set()
    running.join()
"""
    verdict, in_thread = child.run(code.strip()).splitlines()
    assert in_thread == EPERM
    assert verdict == "confined" or re.match(r"thread \d+ is not confined: it has .*'CapEff': [1-9]", verdict)
