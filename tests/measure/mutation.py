"""Changes one thing of a module at a time, and counts which of these mutants the module's tests notice.

    python -m tests.measure.mutation [--survivors] [--digits=37] [name of a target, or part of it]...

Each target is tested in a copy of the sources, by those of its tests that need no kernel. mutmut mutates functions and
methods; it leaves out what is decorated, and what a module says outside of functions, such as regular expressions.
`--digits=37` tries a fifth: the mutants whose numbers end with 3 or 7.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MUTMUT = [sys.executable, str(Path(__file__).with_name("mutmut_runner.py"))]

POLICY = ["tests/tool_exec/policy"]


def _without(file: str, *slow: str) -> list[str]:
    """Returns a file of tests without those that take seconds, and that others make superfluous here."""
    return [file, *(f"--deselect={file}::test_{name}" for name in slow)]


#: Modules below ipybox/, and their tests.
TARGETS: dict[str, list[str]] = {
    "workspace/seal": [
        "tests/workspace/test_seal.py",
        "tests/workspace/test_pinned_tools.py",
        "tests/workspace/test_imported_secrets.py",
    ],
    "tool_exec/approval/approvals": [
        "tests/tool_exec/test_approvals.py",
        "tests/tool_exec/test_approval_request.py",
        *_without("tests/tool_exec/test_batches.py", "ten_thousand_calls_are_made_in_order"),
    ],
    "tool_exec/dispatch": [
        *_without("tests/tool_exec/test_batches.py", "ten_thousand_calls_are_made_in_order"),
        "tests/tool_exec/test_function_calls.py",
        *_without("tests/tool_exec/test_server.py", "a_call_with_values_without_end_is_refused"),
    ],
    "mcp_server/question": ["tests/mcp_server/test_shown_call.py"],
    "support/printable": ["tests/support/test_printable.py", "tests/mcp_server/test_shown_call.py"],
    "tool_exec/approval/policy": [*POLICY, "tests/workspace/trust"],
    "tool_exec/approval/rules": POLICY,
    "tool_exec/approval/conditions": POLICY,
    "tool_exec/approval/patterns": POLICY,
    "tool_exec/approval/document": POLICY,
    "audit/redaction": ["tests/audit/test_redaction.py"],
    "mcp_apigen/render/naming": ["tests/mcp_apigen/test_naming.py"],
    "kernel_mgr/messages": ["tests/kernel_mgr/test_messages.py"],
    "sandbox/settings": ["tests/workspace/trust"],
    "workspace/env_file": ["tests/workspace/test_env_file.py"],
    "workspace/git_config": ["tests/workspace/test_git_config.py"],
    "workspace/imports": ["tests/workspace/test_imports.py"],
    "support/names": ["tests/support/test_names.py"],
    "workspace/registrations": ["tests/workspace/test_registrations.py"],
    "workspace/scan": _without(
        "tests/workspace/test_scan.py",
        "30000_directories_are_all_searched",
        "1001_files_with_secrets_are_hidden_one_by_one",
        "too_many_secrets_are_hidden_by_the_deepest_directory_that_suffices",
        "too_many_secrets_in_many_directories_are_hidden_by_some_of_these",
        "a_directory_of_too_much_that_is_only_protected_can_be_read",
    ),
    "support/scratch": ["tests/support/test_scratch.py"],
    "mcp_client/stdio_servers": _without(
        "tests/mcp_client/test_stdio_servers.py",
        "npx_runs_nothing_of_the_workspace",
        "npm_obeys_its_global_configuration_and_not_that_of_the_workspace",
        "uv_takes_its_index_from_the_user_and_not_from_the_workspace",
        "generating_starts_a_server_that_imports_nothing_from_the_workspace",
        "registering_with_a_cwd_that_code_can_write_says_what_that_means",
        "generating_follows_no_link",
    ),
    "workspace/trust": ["tests/workspace/trust"],
    "cli/trust": ["tests/workspace/trust"],
    "workspace/writable": [
        "tests/workspace/test_writable.py",
        "tests/workspace/test_programs.py",
        "tests/workspace/test_imports.py",
    ],
}

CONFIGURATION = """
[tool.mutmut]
source_paths = ["ipybox"]
only_mutate = [{module!r}]
pytest_add_cli_args_test_selection = {tests!r}
pytest_add_cli_args = ["-m", "not kernel", "-p", "no:cacheprovider", "-p", "no:randomly"]
also_copy = ["skills", "docs", "README.md"]
timeout_constant = 4.0
timeout_multiplier = 5.0
use_git_change_detection = false
"""

#: What mutmut calls the end of the tests of a mutant, by their exit status.
KILLED, SURVIVED, UNTESTED, TIMEOUT = "killed", "survived", "untested", "timeout"
STATUSES = {0: SURVIVED, 1: KILLED, 3: KILLED, 5: UNTESTED, 33: UNTESTED, 24: TIMEOUT, -24: TIMEOUT, 36: TIMEOUT}


@dataclass
class Score:
    """What became of the mutants of a module."""

    target: str
    counts: Counter[str]
    survivors: str
    seconds: float

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def noticed(self) -> int:
        return self.counts[KILLED] + self.counts[TIMEOUT]

    def __str__(self) -> str:
        share = self.noticed / self.total if self.total else 1.0
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))
        return f"{self.target:32}{self.noticed:5} of {self.total:4}  {share:6.1%}  {self.seconds:5.0f} s  ({kinds})"


def measure(target: str, tests: list[str], digits: str) -> Score:
    """Returns the score of a module; of the mutants whose numbers end with one of the digits, if there are any."""
    started = time.monotonic()
    module = f"ipybox/{target}.py"
    with tempfile.TemporaryDirectory(prefix="ipybox-mutation-") as directory:
        copy = Path(directory)
        for name in ("ipybox", "tests", "skills", "docs", "README.md", "pyproject.toml"):
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
        with (copy / "pyproject.toml").open("a") as file:
            file.write(CONFIGURATION.format(module=module, tests=tests))
        done = _run(copy, "run", "--max-children", "1", *(f"*{digit}" for digit in digits))
        results = copy / "mutants" / f"{module}.meta"
        if not results.exists() or done.returncode:
            print(f"{target}: mutmut failed\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}", flush=True)
            return Score(target, Counter(), "", time.monotonic() - started)
        statuses: dict[str, int | None] = json.loads(results.read_text())["exit_code_by_key"]
        kinds = {name: STATUSES.get(code, str(code)) for name, code in statuses.items() if code is not None}
        survivors = [name for name, kind in kinds.items() if kind in (SURVIVED, UNTESTED)]
        diffs = _run(copy, "diffs", module, *survivors).stdout
    return Score(target, Counter(kinds.values()), diffs, time.monotonic() - started)


def _run(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "IPYBOX_UNMEASURED": "1"}
    return subprocess.run([*MUTMUT, *arguments], cwd=copy, env=environment, capture_output=True, text=True)


def main(arguments: list[str]) -> None:
    """Measures the targets that are named, or all."""
    wanted = [argument for argument in arguments if not argument.startswith("--")] or [""]
    digits = "".join(argument.removeprefix("--digits=") for argument in arguments if argument.startswith("--digits="))
    for target in dict.fromkeys(target for part in wanted for target in TARGETS if part in target):
        score = measure(target, TARGETS[target], digits)
        print(score, flush=True)
        if "--survivors" in arguments:
            print(score.survivors, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
