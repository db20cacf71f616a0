"""Builds this version's environment: `build.py LOCK`, where LOCK is the descriptor of a held lock."""

import sys
from pathlib import Path

ROOT = Path(__file__).absolute().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "package")]

from launch.environment import Environment, LaunchError, build

if __name__ == "__main__":
    try:
        build(Environment.here(), int(sys.argv[1]))
    except LaunchError as exc:
        sys.exit(str(exc))
    except OSError as exc:
        sys.exit(f"{exc.strerror}: {exc.filename}")
