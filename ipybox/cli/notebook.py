"""`ipybox notebook`: writes a session of the audit log as a Jupyter notebook."""

import json
import sys
from pathlib import Path

import click

from ipybox.audit.log import open_logs
from ipybox.audit.notebook.logged import LoggedSessions
from ipybox.cli.command import command
from ipybox.cli.output import say, say_table
from ipybox.cli.parsing import Failure
from ipybox.support.safe_directory import open_directory


@command("notebook", "SESSION is the name or id of a session in the audit log.")
@click.argument("session", required=False)
@click.option("--output", metavar="FILE", help="file to create, or - for stdout (default: SESSION.ipynb)")
def notebook(workspace: Path, session: str | None, output: str | None) -> int:
    """Writes the notebook of a session into a new file, or lists the sessions; returns the exit status."""
    try:
        with open_logs(workspace) as files:
            sessions = LoggedSessions(files)
            if session is None:
                rows = [(it.name or "(unnamed)", it.id, it.local_time, f"{it.cells:,}") for it in sessions.latest()]
                say_table(["Session", "Id", "Started", "Cells"], rows)
                return 0
            found = sessions.find(session)
            document = sessions.notebook(found)
    except FileNotFoundError as exc:
        raise Failure(f"no audit log in {workspace}: choose the session's workspace with --workspace") from exc
    except (OSError, ValueError) as exc:
        raise Failure(str(exc)) from exc
    # nbformat copies all of it several times, and writes lists of lines, which the format doesn't require.
    data = f"{json.dumps(document, indent=1, ensure_ascii=False)}\n".encode()
    if output == "-":
        sys.stdout.buffer.write(data)
        return 0
    path = Path(found.file_name if output is None else output)
    try:
        with open_directory(path.parent, create=False) as directory:
            directory.write_new(path.name, data)
    except FileExistsError as exc:
        raise Failure(f"{path} already exists: choose another file with --output, or - for stdout") from exc
    except (OSError, ValueError) as exc:
        raise Failure(str(exc)) from exc
    say(f"{path}: {found}")
    return 0
