"""What a process that is restricted in its writes can't open any more, and what it still can, tried for real."""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from ipybox.guest import landlock
from tests.guest.child import DONE, USERS
from tests.guest.landlock.child import RestrictedChild
from tests.guest.landlock.in_child import (
    ordinary_database,
    ordinary_devices,
    ordinary_file_by_its_descriptor,
    ordinary_file_without_a_name,
    ordinary_memory_file,
    ordinary_moving,
    ordinary_pipes,
    ordinary_pools,
    ordinary_reading,
    ordinary_redirections,
    ordinary_ruleset_of_a_program,
    ordinary_shared_memory,
    ordinary_signals,
    ordinary_terminals,
    ordinary_writing,
    own_settings_in_proc,
    probe_a_file,
    probe_a_pipe,
    probe_a_pipe_as_if_it_were_new,
    probe_a_pipe_by_a_hard_link,
    probe_a_pipe_by_a_link,
    probe_a_pipe_by_a_ruleset_that_allows_it,
    probe_a_pipe_by_the_root_of_a_process,
    probe_a_pipe_for_both,
    probe_a_pipe_from_a_thread,
    probe_a_pipe_in_an_open_directory,
    probe_a_pipe_that_is_moved_here,
    probe_a_pipe_that_is_open_for_nothing,
    probe_a_pipe_that_is_open_for_reading,
    probe_an_abstract_socket_of_a_process_that_is_not_restricted,
    probe_cutting_a_file_by_its_name,
    probe_signalling_a_process_that_is_not_restricted,
    settings_of_the_system,
)


@dataclass(frozen=True)
class Probe:
    """What a restricted process is refused; it works where nothing is restricted."""

    function: Callable[[], None]
    refused: tuple[str, ...] = ("EACCES",)

    @property
    def name(self) -> str:
        return self.function.__name__


#: An ordinary user has less, also without restrictions.
MOVED = ("EXDEV", "EACCES", "EPERM", "EROFS")
PROBES = [
    Probe(probe_a_pipe),
    Probe(probe_a_pipe_for_both),
    Probe(probe_a_pipe_as_if_it_were_new, ("EACCES", "EROFS")),
    Probe(probe_a_pipe_that_is_open_for_reading),
    Probe(probe_a_pipe_that_is_open_for_nothing),
    Probe(probe_a_pipe_by_a_link),
    Probe(probe_a_pipe_by_the_root_of_a_process),
    Probe(probe_a_pipe_in_an_open_directory),
    Probe(probe_a_pipe_by_a_hard_link, MOVED),
    Probe(probe_a_pipe_that_is_moved_here, MOVED),
    Probe(probe_a_pipe_by_a_ruleset_that_allows_it),
    Probe(probe_a_pipe_from_a_thread),
    Probe(probe_a_file, ("EACCES", "EROFS")),
    Probe(probe_cutting_a_file_by_its_name, ("EACCES", "EROFS")),
]
#: Since Linux 6.12; in srt there are no unix sockets at all.
SCOPED = [
    Probe(probe_signalling_a_process_that_is_not_restricted, ("EPERM",)),
    Probe(probe_an_abstract_socket_of_a_process_that_is_not_restricted, ("EPERM",)),
]
ORDINARY: list[Callable[[], None]] = [
    ordinary_writing,
    ordinary_moving,
    ordinary_file_without_a_name,
    ordinary_file_by_its_descriptor,
    ordinary_memory_file,
    ordinary_pipes,
    ordinary_devices,
    ordinary_terminals,
    ordinary_shared_memory,
    ordinary_redirections,
    ordinary_signals,
    ordinary_pools,
    ordinary_database,
    ordinary_reading,
    ordinary_ruleset_of_a_program,
]


def version() -> int:
    """Returns the version of Landlock in this kernel, or -1 without Landlock."""
    return ctypes.CDLL(None).syscall(landlock.CREATE_RULESET, None, 0, landlock.CREATE_RULESET_VERSION)


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.sandbox)], ids=["bare", "in_srt"])
def in_srt_or_not(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(scope="module", params=USERS)
def child(request: pytest.FixtureRequest, in_srt_or_not: bool) -> RestrictedChild:
    return RestrictedChild(request.param, in_srt=in_srt_or_not)


@pytest.fixture(scope="module")
def refused(child: RestrictedChild) -> Mapping[str, str]:
    return child.outcomes([probe.function for probe in (*PROBES, *SCOPED)])


@pytest.fixture(scope="module")
def free() -> Mapping[str, str]:
    return RestrictedChild(USERS[0], in_srt=False).outcomes(
        [probe.function for probe in (*PROBES, *SCOPED)], enforced=False
    )


@pytest.fixture(scope="module")
def working(child: RestrictedChild) -> Mapping[str, str]:
    return child.outcomes([*ORDINARY, own_settings_in_proc, settings_of_the_system])


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_a_restricted_process_is_refused(refused: Mapping[str, str], probe: Probe):
    assert refused[probe.name] in probe.refused


@pytest.mark.parametrize("probe", SCOPED, ids=lambda probe: probe.name)
def test_a_restricted_process_does_not_reach_others(refused: Mapping[str, str], probe: Probe):
    assert refused[probe.name] in probe.refused or version() < landlock.ABI_SCOPES


@pytest.mark.parametrize("probe", [*PROBES, *SCOPED], ids=lambda probe: probe.name)
def test_the_same_works_where_nothing_is_restricted(free: Mapping[str, str], probe: Probe):
    assert free[probe.name] == DONE


@pytest.mark.sandbox
def test_a_read_only_mount_alone_leaves_pipes_open():
    functions = [probe_a_pipe, probe_a_file]
    outcomes = RestrictedChild(USERS[0], in_srt=True).outcomes(functions, enforced=False)

    assert outcomes == {probe_a_pipe.__name__: DONE, probe_a_file.__name__: "EROFS"}


@pytest.mark.parametrize("function", ORDINARY, ids=lambda function: function.__name__)
def test_ordinary_things_work(working: Mapping[str, str], function: Callable[[], None]):
    assert working[function.__name__] == DONE


def test_settings_of_the_system_and_of_processes_are_closed(working: Mapping[str, str]):
    assert working[settings_of_the_system.__name__] in ("EACCES", "EROFS")
    assert working[own_settings_in_proc.__name__] == "EACCES"


def test_a_single_file_can_be_allowed(child: RestrictedChild):
    code = """
    Path("allowed").touch()
    Path("other").touch()
    assert restrict("allowed")
    write("allowed", os.O_TRUNC)
    print(outcomes.outcome(lambda: write("other")))
"""
    assert child.run(code.strip()) == "EACCES\n"


def test_a_system_without_landlock_goes_on_without(child: RestrictedChild):
    code = """
    landlock.CREATE_RULESET = 1023
    print(restrict("."), outcomes.outcome(probe_a_pipe))
"""
    assert child.run(code.strip()) == "False done\n"


def test_threads_that_would_stay_unrestricted_are_an_error(child: RestrictedChild):
    code = """
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    try:
        landlock.restrict_writes(["."])
    except OSError as error:
        print(error)
    go.set()
"""
    assert "the process has 2 threads" in child.run(code.strip())


def test_what_was_not_confined_before_is_an_error():
    code = """
    try:
        landlock.restrict_writes(["."])
    except OSError as error:
        print(error)
"""
    assert "could not enter the domain" in RestrictedChild("ordinary", in_srt=False).run(code.strip())


def test_an_isolated_process_writes_as_before_and_reaches_no_process_but_its_children():
    """Two children that are isolated one after the other stand for kernels that were forked off the template."""
    code = """
    assert restrict(".")
    read_end, write_end = os.pipe()
    if (sibling := os.fork()) == 0:
        assert landlock.isolate_process()
        os.write(write_end, b"x")
        signal.pause()
    os.read(read_end, 1)
    os.kill(sibling, 0)
    if (pid := os.fork()) == 0:
        assert landlock.isolate_process()
        found = [outcomes.outcome(lambda: os.kill(process, 0)) for process in (sibling, os.getppid(), os.getpid())]
        Path("file").write_text("1")
        Path("directory").mkdir()
        os.rename("file", "directory/file")
        print(*found, len(os.listdir("/proc/self/fd")) > 2, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    os.kill(sibling, signal.SIGKILL)
"""
    printed = RestrictedChild(USERS[0], in_srt=False).run(code.strip())
    refused = "EPERM" if version() >= landlock.ABI_SCOPES else DONE
    assert printed == f"{refused} {refused} {DONE} True\n"


def test_what_can_gain_privileges_is_not_isolated():
    code = "    print(landlock.isolate_process(), outcomes.outcome(lambda: os.kill(os.getppid(), 0)))"
    assert RestrictedChild("ordinary", in_srt=False).run(code.strip()) == f"False {DONE}\n"
