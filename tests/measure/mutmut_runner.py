"""Runs mutmut, which selects tests with their parameters: names with escapes in them are not found again.

python tests/measure/mutmut_runner.py run --max-children 1
python tests/measure/mutmut_runner.py diffs MODULE MUTANT...
"""

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    pytest_runner: Any = import_module("mutmut.runners.harness").PytestRunner  # not installed for type checks
    run_tests = pytest_runner.run_tests

    def run_functions(self: object, *, mutant_name: str | None, tests: Iterable[str]) -> int:
        """Runs test functions with all their parameters; returns the exit status of pytest."""
        functions = dict.fromkeys(test.partition("[")[0] for test in tests)
        return run_tests(self, mutant_name=mutant_name, tests=functions)

    pytest_runner.run_tests = run_functions
    main = import_module("mutmut.__main__")
    if sys.argv[1] == "diffs":
        for name in sys.argv[3:]:
            print(f"# {name}", main.get_diff_for_mutant(name, path=Path(sys.argv[2])), sep="\n")
    else:
        main.cli()
