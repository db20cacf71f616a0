"""What pyright says in its strict mode, once over all packages of a directory."""

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_PYRIGHT = _ROOT / ".npm" / "node_modules" / "pyright" / "index.js"
_LIMIT = 1800.0


class TypeCheckError(Exception):
    """pyright can't be run; the message is one line."""


@dataclass(frozen=True)
class Finding:
    """An error, in a module of a package."""

    package: str
    module: str
    rule: str
    message: str


@dataclass(frozen=True)
class Types:
    """All errors, and how long pyright took."""

    findings: list[Finding]
    seconds: float

    def of(self, package: str) -> list[Finding]:
        """Those in a package."""
        return [each for each in self.findings if each.package == package]

    @property
    def by_rule(self) -> dict[str, int]:
        """How many there are of each rule, the most frequent first."""
        return dict(Counter(each.rule for each in self.findings).most_common())


def require_pyright() -> None:
    """Makes sure that pyright can be run.

    Raises:
        TypeCheckError: It can't.
    """
    if not _PYRIGHT.exists() or shutil.which("node") is None:
        raise TypeCheckError("no node, or no pyright in .npm: run `make typecheck` once, or go without by --no-types")


def check(root: Path) -> Types:
    """Checks the packages in `root/mcptools`.

    Raises:
        TypeCheckError: pyright failed.
    """
    config = {
        "include": ["mcptools"],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
        "extraPaths": [str(_ROOT)],
    }
    (root / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    command = ["node", str(_PYRIGHT), "--outputjson", "-p", str(root)]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT)
    if done.returncode not in (0, 1):
        raise TypeCheckError(f"pyright failed: {(done.stderr or done.stdout).strip()[:200]}")
    report: dict[str, Any] = json.loads(done.stdout)
    if not report["summary"]["filesAnalyzed"]:
        raise TypeCheckError("pyright found no file to check")
    errors = [_finding(each, root / "mcptools") for each in report["generalDiagnostics"] if each["severity"] == "error"]
    return Types(errors, time.perf_counter() - began)


def _finding(diagnostic: dict[str, Any], packages: Path) -> Finding:
    path = Path(diagnostic["file"]).relative_to(packages.resolve())
    message = " ".join(diagnostic["message"].split())
    return Finding(path.parts[0], path.stem, diagnostic.get("rule", "syntax"), message)
