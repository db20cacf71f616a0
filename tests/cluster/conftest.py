"""The engines of the cluster that `cluster.sh` brings up: Slurm, and SSH hosts."""

from collections.abc import Iterator

import pytest

from tests.cluster.machines import DIRECTORY, srun, ssh


@pytest.fixture(scope="session", autouse=True)
def cluster(private_directories: None) -> Iterator[None]:
    assert (DIRECTORY / "slurm.conf").exists(), "run `make cluster`, which brings up the cluster"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(DIRECTORY / "slurm.conf"))
        yield


@pytest.fixture(scope="module", params=["slurm", "ssh"])
def command(request: pytest.FixtureRequest, cluster: None) -> list[str]:
    """The command of an engine, for the tests of `tests/remote`."""
    return srun() if request.param == "slurm" else ssh()
