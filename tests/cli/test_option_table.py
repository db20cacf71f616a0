"""The table of options: each option of the SDK and the MCP server is in it, with its real default."""

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutor, Executor, ExecutorConfig
from ipybox.cli.docker import option_arguments
from ipybox.cli.option import Option
from ipybox.cli.option_table import OPTIONS, command_options, given_parameters
from ipybox.docker.request import HANDLED, container_options
from ipybox.mcp_server import MCPServer
from tests.cli.parsed import parsed

#: Fields that the command line sets from several options, from the environment, or not at all.
NOT_DIRECT = {
    "kernel_env",  # KERNEL_ENV_X of the environment
    "variables",  # .env of the workspace
    "working_dir",  # --workspace
    "images_dir",  # always in the workspace
    "sandbox_config",  # --sandbox-profile, --sandbox-config, --workspace-config
    "allowed_domains",  # --allow-domain, part of the settings above
    "approval_policy",  # --approve
    "approver",  # a function: --approve asks the user instead
    "approval_timeout",  # elicitation has its own
    "audit",  # an option of MCPServer
    "tools",  # functions of an application
    "notebook_bytes",  # sessions of the MCP server keep nothing: `ipybox notebook` reads the audit log
}


def parameters(of: type) -> dict[str, inspect.Parameter]:
    return {name: each for name, each in inspect.signature(of).parameters.items() if name != "self"}


def test_code_executor_accepts_the_fields_of_its_configuration():
    accepted = parameters(CodeExecutor)
    assert list(accepted) == [field.name for field in fields(ExecutorConfig)]
    assert {name: each.default for name, each in accepted.items()} == {
        field.name: field.default for field in fields(ExecutorConfig)
    }
    positional = [name for name, each in accepted.items() if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert positional[-1] == "kernel_env"


@pytest.mark.parametrize("of", [CodeExecutor, Executor])
def test_a_working_directory_by_position_is_refused(of: type, tmp_path: Path):
    with pytest.raises(TypeError, match="takes from 1 to 6 positional arguments but 7 were given"):
        of("localhost", None, "localhost", None, None, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sanbox": True}, "unexpected keyword argument 'sanbox'"),
        (
            {"approval_policy": {"default": "ask"}},
            r"^approval_policy must be an ApprovalPolicy or the path of a file, not ",
        ),
        ({"approver": "x"}, "approver must be a function that accepts an ApprovalRequest, not 'x'"),
        ({"tools": print}, r"tools must be a list of functions, not builtin_function_or_method"),
        ({"tools": "print"}, "tools must be a list of functions, not str"),
        ({"preload": "pandas"}, "^preload must be a list of module names, not str$"),
        ({"notebook_bytes": 1.5}, r"^notebook_bytes must be an int in bytes, or 0 to keep nothing, not 1\.5$"),
        ({"kernel_init_timeout": "5"}, r"^kernel_init_timeout='5' must be a number of seconds$"),
        ({"approval_timeout": "5"}, r"^approval_timeout='5' must be a number of seconds, or None for no limit$"),
    ],
)
def test_an_option_of_the_wrong_type_is_an_error_that_says_what_is_expected(options: dict[str, Any], message: str):
    for of in (CodeExecutor, Executor):
        with pytest.raises(TypeError, match=message):
            of(**options)


def test_only_names_of_modules_are_preloaded():
    with pytest.raises(ValueError, match=r"^preload: 'os; import sys' is not a module name$"):
        CodeExecutor(preload=["os.path", "os; import sys"])


def test_require_shell_escape_needs_the_approval_of_commands():
    with pytest.raises(ValueError, match="requires approve_shell_cmds=True"):
        CodeExecutor(require_shell_escape=True)


@pytest.mark.parametrize("of", [ExecutorConfig, MCPServer])
def test_each_parameter_is_an_option_and_each_option_a_parameter(of: type):
    options = {option.parameter for option in OPTIONS if option.sets is of}
    special = NOT_DIRECT if of is ExecutorConfig else {"config", "approve", "resources"}
    assert options == parameters(of).keys() - special


def test_help_names_the_real_defaults():
    told = {option.name: option.help or "" for option in OPTIONS}
    for name, default in {
        "connect_timeout": 30,
        "register_timeout": 120,
        "max_sessions": 8,
        "audit": "full",
        "images": "both",
        "log_level": "WARNING",
        "host": "127.0.0.1",
        "port": 8910,
    }.items():
        assert told[name].endswith(f"(default: {default})")


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.flag)
def test_the_types_of_values_are_those_of_parameters(option: Option):
    assert bool(option.metavar) != option.is_flag
    if option.sets is not None:
        default = inspect.signature(option.sets).parameters[option.parameter].default
        assert option.is_flag == isinstance(default, bool)
        assert not option.is_flag or default is (option.name or "").startswith("no_")
        assert option.multiple == isinstance(default, tuple)


def test_only_what_is_given_is_passed_to_the_classes():
    given = parsed(["--cpu-seconds=3", "--audit=hash", "--no-spare-kernel", "--allowed-host=a", "--port=0"])
    assert given_parameters(given, ExecutorConfig) == {"cpu_seconds": 3.0, "spare_kernel": False}
    assert given_parameters(given, MCPServer) == {"audit": "hash"}
    assert given_parameters(given, MCPServer.run_http) == {"allowed_hosts": ("a",), "port": 0}
    assert given_parameters(parsed(["serve"]), ExecutorConfig) == {}


def test_what_docker_passes_on_is_what_the_container_reads(tmp_path: Path):
    given = ["--sandbox", "--allow-domain=a.org,b.org", "--allow-domain=c.org", "--workspace-config"]
    given += ["--max-sessions=2", "--no-spare-kernel", "--connect-timeout=2.5"]
    passed_on = container_options(option_arguments(parsed(["docker", f"--workspace={tmp_path}", *given]))).passed_on
    inside = parsed(["--sandbox", *passed_on])
    assert inside["allow_domain"] == ("a.org", "b.org", "c.org")
    assert (inside["workspace_config"], inside["max_sessions"], inside["allowed_dir"]) == (True, 2, (".",))
    assert (inside["no_spare_kernel"], inside["connect_timeout"]) == (False, 2.5)


def test_the_container_gets_each_option_that_is_not_handled_on_the_host():
    assert {option.flag for option in command_options("docker")} > HANDLED


def test_options_of_the_contract_exist():
    options = {option.flag for option in OPTIONS}
    assert options >= {
        "--workspace",
        "--tool-server-host",
        "--tool-server-port",
        "--kernel-gateway-host",
        "--kernel-gateway-port",
        "--sandbox",
        "--sandbox-config",
        "--allow-domain",
        "--allowed-dir",
        "--log-level",
    }


def test_domains_are_a_list_however_they_are_given():
    given = ["--allow-domain", "a.org, b.org,", "--allow-domain=", "--allow-domain=c.org"]

    assert parsed(given)["allow_domain"] == ("a.org", "b.org", "c.org")


def test_a_settings_file_is_relative_to_the_directory_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for given, file in (("a.json", "a.json"), ("~/b.json", "home/b.json"), (str(tmp_path / "c.json"), "c.json")):
        assert parsed(["--sandbox-config", given])["sandbox_config"] == tmp_path / file
