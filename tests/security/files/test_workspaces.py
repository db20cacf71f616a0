"""Several sandboxes of one workspace, and the profile that hides the home."""

from pathlib import Path

import pytest

from tests.security import file_attacks, kernels
from tests.security.conftest import Row
from tests.security.files.probing import ABSENT, MAKING, Kernels, try_to_write
from tests.security.kernels import Place, Probe, held, make_place, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.kernel]


async def test_names_stay_closed_when_another_sandbox_of_the_workspace_ends(
    all_kernels: Kernels, tmp_path: Path, table: list[Row]
):
    async with running(all_kernels.bare_place):
        pass

    for probe, target in MAKING[: len(ABSENT)]:
        plain = all_kernels.plain, make_place(_directory(tmp_path, probe.name), bare=True)
        again = Probe(f"{probe.name} after another sandbox", probe.attack, probe.arguments)
        await try_to_write(again, f"bare/{target}", plain, (all_kernels.bare, all_kernels.bare_place), table)


async def test_the_locks_of_other_sandboxes_can_not_be_taken(all_kernels: Kernels, tmp_path: Path, table: list[Row]):
    probe = Probe("taking the locks that sandboxes wait for", file_attacks.take_the_locks, ("{workspace}/.ipybox",))
    plain = make_place(tmp_path, bare=True)
    (plain.workspace / ".ipybox").mkdir()
    (plain.workspace / ".ipybox" / "x.lock").touch()
    outside = await probe.run(all_kernels.plain, plain)
    assert outside.got, f"the attack does not work where nothing stops it: {outside}"

    within = await probe.run(all_kernels.bare, all_kernels.bare_place)

    assert within.got is None
    held(table, "Writing", probe, "taken", within)


async def test_the_profile_workspace_hides_the_home(
    home: Place, all_kernels: Kernels, plain_place: Place, tmp_path: Path, table: list[Row], shared: None
):
    inside = Place(home.root, home.home / "project", home.secret)
    inside.workspace.mkdir()
    (inside.workspace / "file").write_text("of the workspace")
    names = [*kernels.CREDENTIALS, *kernels.HOME_FILES]
    async with running(inside, config="workspace") as kernel:
        for name in names:
            probe = Probe(f"reading ~/{name} in profile workspace", file_attacks.read, (f"{{home}}/{name}",))
            outside = await probe.run(all_kernels.plain, plain_place)
            assert outside.got, f"the attack does not work where nothing stops it: {outside}"
            within = await probe.run(kernel, inside)
            assert not within.got, f"~/{name} was read"
            held(table, "Profile workspace", probe, "read", within)
        whole = await kernel.run(file_attacks.search, str(home.home))
        own = await kernel.run(file_attacks.read, str(inside.workspace / "file"))

    assert home.secret not in (whole.got or "")
    assert own.got == "of the workspace"


def _directory(parent: Path, name: str) -> Path:
    directory = parent / name.replace("/", "-")
    directory.mkdir()
    return directory
