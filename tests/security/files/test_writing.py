"""What is not the workspace's can't be written, however it is tried."""

import shutil
import sys
from pathlib import Path

import pytest

import ipybox
from tests.security import file_attacks, kernels
from tests.security.conftest import Row
from tests.security.files.probing import MAKING, Kernels, try_to_write
from tests.security.kernels import Place, Probe, held, make_place

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.kernel]

#: Where something is, how it is changed, and what of the place shows it.
WRITING: list[tuple[Probe, str]] = [
    *(
        (Probe(f"overwriting ~/{name}", file_attacks.append, (f"{{home}}/{name}",)), f"home/{name}")
        for name in kernels.HOME_FILES
    ),
    *(
        (Probe(f"making ~/{name}", file_attacks.write, (f"{{home}}/{name}",)), f"home/{name}")
        for name in (
            *("new", ".zshenv", ".ssh/authorized_keys", ".ssh/rc", ".local/bin/git", ".config/systemd/user/x.service"),
            *(".config/git/config", ".ipython/profile_default/startup/x.py", ".jupyter/jupyter_config.py"),
            *(".local/lib/python3.11/site-packages/x.pth", ".claude/settings.json", ".local/state/ipybox/seal.key"),
        )
    ),
    *(
        (Probe(f"{how} a file outside", attack, ("{outside}/file", *more)), "outside")
        for how, attack, more in (
            ("overwriting", file_attacks.write, ()),
            ("appending to", file_attacks.append, ()),
            ("truncating", file_attacks.truncate, ()),
            ("removing", file_attacks.remove, ()),
            ("changing the mode of", file_attacks.change_mode, ()),
            ("mapping", file_attacks.map_and_write, ()),
            ("replacing", file_attacks.replace_by_a_link, ("{scratch}",)),
            ("exchanging", file_attacks.exchange, ("{scratch}",)),
            ("writing through a link to", file_attacks.write_through_a_link, ("{scratch}",)),
            (
                "writing through a link to the directory of",
                file_attacks.write_through_a_link_to_the_directory,
                ("{scratch}",),
            ),
            ("writing through a hard link to", file_attacks.write_through_a_hard_link, ("{scratch}",)),
            ("opening a descriptor again of", file_attacks.write_by_reopening_a_descriptor, ()),
            ("opening a path descriptor again of", file_attacks.write_by_reopening_a_path_descriptor, ()),
            ("going through /proc/*/root to", file_attacks.write_through_the_roots_of_processes, ()),
            ("letting ld-linux run cp on", file_attacks.write_with_a_program_run_by_the_loader, ()),
            ("mounting anew what holds", file_attacks.write_after_remounting, ()),
            ("joining other namespaces to write", file_attacks.write_in_the_namespaces_of_processes, ()),
            ("racing a link against writes to", file_attacks.race_a_link_against_writes, ("{scratch}",)),
        )
    ),
    (Probe("making a file outside", file_attacks.write, ("{outside}/new",)), "outside"),
    (Probe("making a directory beside the workspace", file_attacks.write, ("{root}/new/file",)), "new"),
    (Probe("making a file in the workspace's parent", file_attacks.write, ("{root}/file",)), "file"),
    (Probe("removing a directory outside", file_attacks.remove, ("{outside}/directory",)), "outside"),
]

PROTECTED = [
    *(
        (Probe(f"overwriting {name}", file_attacks.append, (f"{{workspace}}/{name}",)), name)
        for name in kernels.CONFIGURATION
    ),
    *(
        (Probe(f"making {name}", file_attacks.write, (f"{{workspace}}/{name}",)), name)
        for name in (
            *("[id]/.git/config",),
            *(".git/hooks/post-merge", "module/.git/hooks/post-merge", "hookless/.git/hooks/post-merge"),
            *(".claude/settings.local.json", ".claude/agents/x.md", ".vscode/settings.json", ".ipybox/new"),
        )
    ),
    *(
        (Probe(f"{how} {name}", attack, (f"{{workspace}}/{name}", *more)), name)
        for how, attack, more in (
            ("removing", file_attacks.remove, ()),
            ("replacing", file_attacks.replace_by_a_link, ("{scratch}",)),
            ("exchanging", file_attacks.exchange, ("{scratch}",)),
        )
        for name in (
            *(".env", ".git/config", ".mcp.json", ".bashrc", ".gitmodules", "module/.git/config"),
            *("sandbox-config.json", "ipybox.yaml"),
        )
    ),
    *(
        (Probe(f"exchanging {name}", file_attacks.exchange, (f"{{workspace}}/{name}", "{scratch}")), name)
        for name in (".git", ".git/hooks", ".claude", ".vscode", ".ipybox", "module", "module/.git", "service")
    ),
    *(
        (Probe(f"removing {name}", file_attacks.remove, (f"{{workspace}}/{name}",)), name)
        for name in (".git/hooks", ".claude", ".vscode")
    ),
    *(
        (
            Probe(
                f"moving {moved} and making {made} again",
                file_attacks.move_and_make_again,
                (f"{{workspace}}/{moved}", f"{{workspace}}/{made}"),
            ),
            moved,
        )
        for moved, made in (
            (".git", ".git/hooks/pre-commit"),
            (".git/hooks", ".git/hooks/pre-commit"),
            (".claude", ".claude/settings.json"),
            (".vscode", ".vscode/tasks.json"),
            (".env", ".env"),
            (".mcp.json", ".mcp.json"),
            (".ipybox", ".ipybox/new"),
            ("module", "module/.git/hooks/pre-commit"),
            ("module/.git", "module/.git/hooks/pre-commit"),
            ("services", "services/web/.env"),
            ("tools", "tools/bin/git"),
            (".venv", ".venv/lib/python3.11/site-packages/x/.env"),
            ("app", "app/[slug]/a*b?/.env"),
            ("CLAUDE.md", "CLAUDE.md"),
        )
    ),
    *(
        (Probe(f"{how} .mcp.json", attack, ("{workspace}/.mcp.json", *more)), ".mcp.json")
        for how, attack, more in (
            ("truncating", file_attacks.truncate, ()),
            ("changing the mode of", file_attacks.change_mode, ()),
            ("mapping", file_attacks.map_and_write, ()),
            ("writing through a link to", file_attacks.write_through_a_link, ("{scratch}",)),
            ("writing through a hard link to", file_attacks.write_through_a_hard_link, ("{scratch}",)),
            ("opening a descriptor again of", file_attacks.write_by_reopening_a_descriptor, ()),
            ("opening a path descriptor again of", file_attacks.write_by_reopening_a_path_descriptor, ()),
            ("going through /proc/*/root to", file_attacks.write_through_the_roots_of_processes, ()),
            ("mounting anew what holds", file_attacks.write_after_remounting, ()),
            ("joining other namespaces to write", file_attacks.write_in_the_namespaces_of_processes, ()),
        )
    ),
]


def named_targets(probes: list[tuple[Probe, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("probe", "target"), probes, ids=[probe.name for probe, _ in probes])


@named_targets(WRITING)
async def test_what_is_not_the_workspace_stays(
    probe: Probe, target: str, all_kernels: Kernels, plain_place: Place, table: list[Row]
):
    sandboxed = all_kernels.configured, all_kernels.configured_place
    await try_to_write(probe, target, (all_kernels.plain, plain_place), sandboxed, table)


@named_targets(PROTECTED)
async def test_configuration_of_the_workspace_stays(
    probe: Probe, target: str, all_kernels: Kernels, plain_place: Place, table: list[Row]
):
    (plain_place.workspace / ".ipybox").mkdir()
    sandboxed = all_kernels.configured, all_kernels.configured_place
    await try_to_write(probe, f"workspace/{target}", (all_kernels.plain, plain_place), sandboxed, table)


@named_targets(MAKING)
async def test_configuration_that_is_not_there_is_not_made(
    probe: Probe, target: str, all_kernels: Kernels, tmp_path: Path, table: list[Row]
):
    plain = all_kernels.plain, make_place(tmp_path, bare=True)
    named_anew = Probe(f"{probe.name} where it was not", probe.attack, probe.arguments)
    await try_to_write(named_anew, f"bare/{target}", plain, (all_kernels.bare, all_kernels.bare_place), table)


@pytest.mark.parametrize(
    ("what", "directory"),
    [
        ("site-packages", Path(pytest.__file__).parents[1]),
        ("the package ipybox", Path(ipybox.__file__).parent),
        ("the programs of the Python environment", Path(sys.executable).parent),
        ("srt", Path(shutil.which("srt") or "/missing").resolve().parent),
        ("/tmp", Path("/tmp")),
        ("/tmp/claude", Path("/tmp/claude")),
        ("/var/tmp", Path("/var/tmp")),
    ],
    ids=str,
)
async def test_programs_and_shared_directories_stay(
    what: str, directory: Path, all_kernels: Kernels, plain_place: Place, table: list[Row]
):
    probe = Probe(f"making a file in {what}", file_attacks.write, (f"{directory}/ipybox-probe-{plain_place.secret}",))
    file = Path(probe.arguments[0])
    made = not directory.exists()
    try:
        outside = await probe.run(all_kernels.plain, plain_place)
        assert file.exists(), f"the attack does not work where nothing stops it: {outside}"
        file.unlink()
        within = await probe.run(all_kernels.configured, all_kernels.configured_place)
        assert not file.exists(), f"{file} was made"
    finally:
        file.unlink(missing_ok=True)
        if made:
            directory.rmdir()
    held(table, "Writing", probe, "written", within)


@pytest.mark.parametrize("name", ["workspace", "bare"])
async def test_the_workspace_itself_can_not_be_replaced(
    name: str, all_kernels: Kernels, tmp_path: Path, table: list[Row]
):
    probe = Probe(
        f"replacing the {name} directory itself", file_attacks.move_and_make_again, ("{workspace}", "{workspace}/new")
    )
    plain = make_place(tmp_path, bare=name == "bare")
    kernel = all_kernels.bare if name == "bare" else all_kernels.configured
    place = all_kernels.bare_place if name == "bare" else all_kernels.configured_place
    outside = await probe.run(all_kernels.plain, plain)
    assert (plain.workspace / "new").exists(), f"the attack does not work where nothing stops it: {outside}"

    within = await probe.run(kernel, place)

    assert not (place.workspace / "new").exists()
    assert not Path(f"{place.workspace}-moved").exists()
    held(table, "Writing", probe, "replaced", within)
