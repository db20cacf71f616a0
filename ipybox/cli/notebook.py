"""`ipybox notebook`: writes a session of the audit log as a Jupyter notebook."""

import re
import sys
from pathlib import Path

import click

from ipybox.audit.log import open_logs
from ipybox.audit.notebook.logged import LoggedSession, LoggedSessions
from ipybox.cli.command import command
from ipybox.cli.output import say, say_table
from ipybox.cli.parsing import Failure
from ipybox.support.safe_directory import open_directory


@command("notebook", "SESSION is the name or id of a session in the audit log.")
@click.argument("session", required=False)
@click.option("--output", metavar="FILE", help="file to create, or - for stdout (default: SESSION.ipynb)")
def notebook(workspace: Path, session: str | None, output: str | None) -> int:
    """Writes the notebook of a session into a new file, or lists the sessions; returns the exit status."""
    import nbformat

    try:
        with open_logs(workspace) as files:
            sessions = LoggedSessions(files)
            if session is None:
                _list(sessions.latest())
                return 0
            found = sessions.find(session)
            document = sessions.notebook(found)
    except FileNotFoundError as exc:
        raise Failure(f"no audit log in {workspace}: choose the session's workspace with --workspace") from exc
    except (OSError, ValueError) as exc:
        raise Failure(str(exc)) from exc
    data = f"{nbformat.writes(document)}\n".encode()  # pyright: ignore[reportUnknownMemberType]
    if output == "-":
        sys.stdout.buffer.write(data)
        return 0
    path = Path(_file_name(found) if output is None else output)
    try:
        with open_directory(path.parent, create=False) as directory:
            directory.write_new(path.name, data)
    except FileExistsError as exc:
        raise Failure(f"{path} already exists: choose another file with --output, or - for stdout") from exc
    except (OSError, ValueError) as exc:
        raise Failure(str(exc)) from exc
    say(f"{path}: {found}")
    return 0


def _list(sessions: list[LoggedSession]) -> None:
    rows = [(each.name or "(unnamed)", each.id, each.local_time, f"{each.cells:,}") for each in sessions]
    say_table(["Session", "Id", "Started", "Cells"], rows)


def _file_name(session: LoggedSession) -> str:
    # The log is untrusted: a name there could be a path.
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '_', session.name or session.id)[:100]}.ipynb"
