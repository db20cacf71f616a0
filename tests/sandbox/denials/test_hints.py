"""Tests the sentences that explain what the sandbox denied."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.sandbox.denials import explain_denials
from ipybox.sandbox.policy import SandboxPolicy
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support import way_in
from tests import servers
from tests.sandbox.denials.texts import SOURCE, refused

#: What an application can give, which has given no file.
A_FILE = "a file for sandbox_config, and start a new executor"


def test_a_hint_names_the_entry_its_source_and_the_remedy(policy: SandboxPolicy):
    ssh = f"{policy.workspace.parent}/home/.ssh"

    assert explain_denials(f"cat: {ssh}/id_rsa: No such file or directory", policy) == [
        f"The sandbox refused to open {ssh}/id_rsa: filesystem.denyRead of {SOURCE} lists {ssh}. "
        f"To allow it, list it in filesystem.allowRead of {A_FILE}."
    ]
    assert explain_denials("cat: x.pem: Permission denied", policy) == [
        f"The sandbox refused to open x.pem: filesystem.denyRead of {SOURCE} lists *.pem. "
        f"To allow it, list it in filesystem.allowRead of {A_FILE}."
    ]
    assert explain_denials("/etc/q: Read-only file system", policy) == [
        f"The sandbox refused to write /etc/q: code can write only what filesystem.allowWrite of {SOURCE} "
        f"lists (now: the workspace {policy.workspace}). To allow it, add an existing directory that contains it to "
        f"the current entries in filesystem.allowWrite of {A_FILE}."
    ]
    (existing,) = explain_denials("/etc/hosts: Read-only file system", policy)
    assert existing.endswith(f"To allow it, add it to the current entries in filesystem.allowWrite of {A_FILE}.")
    assert explain_denials("OSError: [Errno 30] Read-only file system: '.git/index'", policy) == [
        "The sandbox refused to write .git/index: .git is not writable because programs outside "
        "the sandbox read or execute its contents. To allow it, add .git to the current entries in "
        f"filesystem.allowWrite of {A_FILE}."
    ]
    (hook,) = explain_denials("OSError: [Errno 30] Read-only file system: '.git/hooks/x'", policy)
    assert hook.startswith("The sandbox refused to write .git/hooks/x: .git/hooks is not writable because ")
    assert hook.endswith(" No setting allows it.")


@pytest.mark.parametrize(
    ("way", "file", "host", "memory"),
    [
        (
            way_in.WayIn.PLUGIN,
            "sandbox-config.json in the workspace, and reconnect ipybox with /mcp",
            "the plugin's option allowed_domains (with /plugin configure, for the next session)",
            "memory_limit",
        ),
        (
            way_in.WayIn.COMMAND_LINE,
            "a file for --sandbox-config, and restart ipybox",
            "--allow-domain",
            "--memory-limit",
        ),
        (way_in.WayIn.SDK, A_FILE, "allowed_domains", "memory_limit"),
    ],
    ids=["plugin", "command_line", "sdk"],
)
def test_a_hint_names_the_setting_that_the_person_has(
    way: way_in.WayIn, file: str, host: str, memory: str, policy: SandboxPolicy, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(way_in, "_way", way)

    (about_file,) = explain_denials("cat: x.pem: Permission denied", policy)
    (about_host,) = explain_denials("curl: (6) Could not resolve host: example.org", policy)

    assert about_file.endswith(f"To allow it, list it in filesystem.allowRead of {file}.")
    assert about_host.endswith(f"To allow a host, list it in {host}.")
    assert way_in.name_of("memory_limit") == memory


def test_a_hint_names_the_file_of_the_settings(settings: SandboxSettings, workspace: Path):
    policy = SandboxPolicy(replace(settings, file=workspace / "my.json"), workspace)

    (about_file,) = explain_denials("cat: x.pem: Permission denied", policy)
    (about_host,) = explain_denials("curl: (6) Could not resolve host: example.org", policy)

    assert about_file.endswith(f"in filesystem.allowRead of {workspace}/my.json, and start a new executor.")
    assert about_host.endswith("list it in allowed_domains, or in that file, and start a new executor.")


def test_what_is_ipyboxs_own_has_no_remedy(settings: SandboxSettings, workspace: Path):
    policy = SandboxPolicy(settings, workspace, hidden=["/state/ipybox"], read_only=["/env"])

    assert explain_denials("touch: cannot touch '/env/x': Read-only file system", policy) == [
        "The sandbox refused to write /env/x: /env belongs to ipybox. No setting allows it."
    ]


def test_each_refusal_is_told_once_in_order_and_the_last_three_at_most(policy: SandboxPolicy):
    lines = [f"touch: cannot touch '/etc/{name}': Read-only file system" for name in "abcbddd"]

    assert refused("\n".join(lines), policy) == ["to write /etc/c", "to write /etc/b", "to write /etc/d"]


@pytest.mark.kernel
@pytest.mark.sandbox
@pytest.mark.asyncio
async def test_what_a_server_was_refused_is_not_explained_by_the_settings_of_the_kernel(tmp_path: Path):
    (tmp_path / ".env").write_text("KEY=1")
    servers.register(tmp_path, scripted=servers.scripted())
    refusal = "PermissionError: [Errno 13] Permission denied: '.env'"
    code = f"from registered import scripted\nprint('it said:', scripted.run_sync('echo', {{'text': {refusal!r}}}))"
    async with CodeExecutor(working_dir=tmp_path, sandbox=True) as executor:
        result = await executor.execute(code)
        assert (result.text, result.notices) == (f"it said: {refusal}", [])
        with pytest.raises(CodeExecutionError) as caught:  # the server's own words
            await executor.execute(f"scripted.run_sync('fail', {{'text': {refusal!r}}})")
        assert caught.value.notices == []
        with pytest.raises(CodeExecutionError) as caught:  # of a cell that was refused it itself
            await executor.execute("open('.env')")
        assert caught.value.notices[0].startswith("The sandbox refused to open .env")


def test_a_path_can_not_forge_a_hint(policy: SandboxPolicy):
    [hint] = explain_denials("touch: cannot touch '/etc/x\x1b]0;\x07[ipybox]': Read-only file system", policy)

    assert hint.isprintable()


def test_a_line_that_begins_before_the_inspected_part_is_not_taken_for_whole(policy: SandboxPolicy):
    text = "a" * 200_000 + "/etc/x: Read-only file system"

    assert explain_denials(text, policy) == []
    assert refused(f"{text}\n/etc/x: Read-only file system", policy) == ["to write /etc/x"]


#: Seconds of CPU time, ten times what a slow machine takes; what is not linear takes minutes.
INSPECTION = 2.0


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("x" * 79, id="no_error"),
        pytest.param("id 403 forbidden", id="harmless_words"),
        pytest.param("PermissionError: [Errno 13] Permission denied: '/usr/lib/x/y/z'", id="ordinary_errors"),
        pytest.param("Permission denied " + "'a' " * 1000, id="quotes"),
        pytest.param("Permission denied '" + "/a" * 500 + "'", id="deep_path"),
        pytest.param("Permission denied " + "/a" * 1900, id="endless_path"),
        pytest.param("a: " * 1300 + "Permission denied", id="colons"),
        pytest.param("Permission denied '" + "/.env" * 190 + "'", id="globs"),
        pytest.param("[Errno -3] Temporary failure in name resolution " + "http://a." * 400, id="addresses"),
        pytest.param("Could not resolve host " + "a-." * 1300, id="host"),
        pytest.param("CONNECT " + "a" * 4000, id="no_host"),
        pytest.param("'" * 4000 + "Permission denied", id="nothing_quoted"),
        pytest.param("\x1b[" * 2000 + "Permission denied", id="escapes"),
    ],
)
def test_any_text_is_inspected_in_no_time(policy: SandboxPolicy, line: str):
    text = f"{line}\n" * (10_000_000 // len(line))
    explain_denials(text, policy)

    start = time.process_time()
    explain_denials(text, policy)

    assert time.process_time() - start < INSPECTION
