"""What the settings hide can't be read, however it is tried."""

from fnmatch import fnmatch
from pathlib import Path

import pytest
from jupyter_core.paths import jupyter_runtime_dir

from ipybox.support.names import CREDENTIALS
from ipybox.support.state import state_dir
from tests.security import file_attacks, kernels
from tests.security.conftest import Row
from tests.security.files.probing import HOST_KEY, Kernels
from tests.security.kernels import Place, Probe, held, named

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.kernel]

TRICKS = (
    ("with another spelling", file_attacks.read_by_another_spelling, ()),
    ("through a link", file_attacks.read_through_a_link, ("{scratch}",)),
    ("through a link to its directory", file_attacks.read_through_a_link_to_the_directory, ("{scratch}",)),
    ("through a hard link", file_attacks.read_through_a_hard_link, ("{scratch}",)),
    ("through a hard link to a descriptor", file_attacks.read_through_a_hard_link_to_a_descriptor, ("{scratch}",)),
    ("by opening a descriptor again", file_attacks.read_by_reopening_a_descriptor, ()),
    ("relative to its directory", file_attacks.read_relative_to_a_directory, ()),
    ("through /proc/*/root", file_attacks.read_through_the_roots_of_processes, ()),
    ("through /proc/*/cwd", file_attacks.read_through_the_directories_of_processes, ()),
    ("through /proc/*/fd", file_attacks.read_through_the_descriptors_of_processes, ()),
    ("with a program that ld-linux runs", file_attacks.read_with_a_program_run_by_the_loader, ()),
    ("after moving it away", file_attacks.read_after_moving_it, ()),
    ("after taking its mask off", file_attacks.read_after_unmounting, ()),
    ("through a bind mount of its directory", file_attacks.read_through_a_bind_mount, ("{scratch}",)),
    ("in the namespaces of other processes", file_attacks.read_in_the_namespaces_of_processes, ()),
)

READING = [
    *(Probe(f"reading {name}", file_attacks.read, (f"{{workspace}}/{name}",)) for name in kernels.ENV_FILES),
    *(Probe(f"reading ~/{name}", file_attacks.read, (f"{{home}}/{name}",)) for name in kernels.CREDENTIALS),
    *(
        Probe(f"reading what ${variable} names", file_attacks.read, (f"{{root}}/elsewhere/{name}",))
        for variable, name in kernels.VARIABLES.items()
    ),
    Probe("reading a token of Jupyter", file_attacks.read, ("{tokens}/ipybox-probe.json",)),
    *(
        Probe(f"reading {name} {how}", attack, (path, *more))
        for how, attack, more in TRICKS
        for name, path in ((".env", "{workspace}/.env"), ("~/.ssh", "{home}/.ssh/id_ed25519"))
    ),
    Probe(
        "reading a nested .env after moving its directory",
        file_attacks.read_after_moving_what_holds_it,
        ("{workspace}/service/.env", "{workspace}/service"),
    ),
    Probe(
        "reading ~/.ssh after moving it",
        file_attacks.read_after_moving_what_holds_it,
        ("{home}/.ssh/id_ed25519", "{home}/.ssh"),
    ),
    Probe("running a program of ~/.ssh", file_attacks.run, ("{home}/.ssh/program", "")),
    Probe(
        "running a program of ~/.ssh with ld-linux",
        file_attacks.run_by_the_loader,
        ("{home}/.ssh/cat", "{home}/.ssh/id_ed25519"),
    ),
    Probe("archiving the home", file_attacks.archive, ("{home}",)),
    Probe("searching the home", file_attacks.search, ("{home}",)),
    Probe("archiving the workspace", file_attacks.archive, ("{workspace}",)),
]

READING_AS_ROOT = [
    Probe("reading a host key of SSH", file_attacks.read, (str(HOST_KEY),)),
    Probe(
        "reading ~/.ssh through an overlay",
        file_attacks.read_through_an_overlay,
        ("{home}/.ssh/id_ed25519", "{scratch}"),
    ),
    Probe("reading ~/.ssh after chroot", file_attacks.read_in_another_root, ("{home}/.ssh/id_ed25519",)),
    Probe("reading .env by a file handle", file_attacks.read_by_handle, ("{workspace}/.env",)),
]


@named(READING + (READING_AS_ROOT if kernels.ROOT else []))
async def test_secrets_stay_hidden(probe: Probe, all_kernels: Kernels, plain_place: Place, table: list[Row]):
    token = Path(jupyter_runtime_dir()) / "ipybox-probe.json"
    outside = await probe.run(all_kernels.plain, plain_place)
    secrets = (plain_place.secret, token.read_text())
    assert outside.got is not None, f"the attack does not work where nothing stops it: {outside}"
    assert any(secret in outside.got for secret in secrets), f"the attack did not get the secret: {outside}"

    within = await probe.run(all_kernels.configured, all_kernels.configured_place)

    assert all_kernels.configured_place.secret not in (within.got or ""), f"the secret was read: {within}"
    held(table, "Reading", probe, "read", "an empty file" if within.got == "" else within)


async def test_the_key_of_seals_stays_hidden(all_kernels: Kernels, plain_place: Place, table: list[Row]):
    probe = Probe("reading the key of seals", file_attacks.read_bytes_in_hexadecimal, ("{key}",))
    outside = await probe.run(all_kernels.plain, plain_place)
    assert outside.got == (state_dir() / "seal.key").read_bytes().hex()

    within = await probe.run(all_kernels.configured, all_kernels.configured_place)

    assert within.got is None
    held(table, "Reading", probe, "read", within)


async def test_there_is_a_credential_for_each_entry_of_the_settings():
    for entry in CREDENTIALS:
        if entry.startswith("~/") and not entry.startswith("~/Library"):
            pattern = entry.removeprefix("~/")
            parents = {str(parent) for name in kernels.CREDENTIALS for parent in (Path(name), *Path(name).parents)}
            assert any(fnmatch(name, pattern) for name in parents), f"nothing stands for {entry}"
