"""Named pipes and disks stay closed."""

import os

import pytest

from tests.security import file_attacks, kernels
from tests.security.conftest import Row
from tests.security.files.probing import Kernels
from tests.security.kernels import Place, Probe, held

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.kernel]


async def test_programs_that_read_a_named_pipe_are_not_reached(
    all_kernels: Kernels, plain_place: Place, table: list[Row]
):
    probe = Probe("writing to a named pipe outside", file_attacks.write_to_a_pipe, ("{outside}/pipe",))
    received: list[bytes | None] = []
    outcomes: list[kernels.Outcome] = []
    for kernel, place in (
        (all_kernels.plain, plain_place),
        (all_kernels.configured, all_kernels.configured_place),
    ):
        path = place.outside / "pipe"
        os.mkfifo(path)
        pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        try:
            outcomes.append(await probe.run(kernel, place))
            received.append(os.read(pipe, 64))
        except BlockingIOError:
            received.append(None)
        finally:
            os.close(pipe)
            path.unlink()

    assert received[0] == file_attacks.MARK.encode(), f"the attack does not work where nothing stops it: {outcomes[0]}"
    assert received[1] is None
    held(table, "Writing", probe, "received", outcomes[1])


async def test_disks_stay_closed(all_kernels: Kernels, plain_place: Place, table: list[Row]):
    probe = Probe("opening a disk", file_attacks.open_a_disk, ("{outside}", "{scratch}"))
    outside = await probe.run(all_kernels.plain, plain_place)
    assert outside.got or not kernels.ROOT, f"the attack does not work where nothing stops it: {outside}"

    within = await probe.run(all_kernels.configured, all_kernels.configured_place)

    assert within.got is None
    held(table, "Disks", probe, outside, within)
