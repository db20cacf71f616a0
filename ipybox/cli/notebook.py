"""`ipybox notebook`: writes a session of the audit log as a Jupyter notebook."""

import re
import sys
from pathlib import Path

from ipybox.audit.log import open_logs
from ipybox.audit.notebook.logged import LoggedSession, LoggedSessions
from ipybox.support.printable import printable
from ipybox.support.safe_directory import open_directory


def notebook(workspace: Path, session: str | None, output: str | None) -> int:
    """Writes the notebook of a session, or lists the sessions; returns the exit status.

    Args:
        workspace: The workspace, whose audit log is read.
        session: The name or the id of the session; None to list the sessions.
        output: The file, which must not exist; `-` is stdout, and None a file named after the session.
    """
    import nbformat

    try:
        with open_logs(workspace) as files:
            sessions = LoggedSessions(files)
            if session is None:
                print("\n".join(map(str, sessions.latest())))
                return 0
            found = sessions.find(session)
            document = sessions.notebook(found)
    except FileNotFoundError:
        return _fail(f"{workspace} has no audit log: give the workspace of the session with --workspace")
    except (OSError, ValueError) as exc:
        return _fail(str(exc))
    data = f"{nbformat.writes(document)}\n".encode()  # pyright: ignore[reportUnknownMemberType]
    if output == "-":
        sys.stdout.buffer.write(data)
        return 0
    path = Path(_file_name(found) if output is None else output)
    try:
        with open_directory(path.parent, create=False) as directory:
            directory.write_new(path.name, data)
    except FileExistsError:
        return _fail(f"{path} exists, and is not replaced: give another file with --output, or - for stdout")
    except (OSError, ValueError) as exc:
        return _fail(str(exc))
    print(printable(f"{path}: {found}"))
    return 0


def _file_name(session: LoggedSession) -> str:
    # The log is untrusted: a name there could be a path.
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '_', session.name or session.id)[:100]}.ipynb"


def _fail(message: str) -> int:
    print(printable(f"ipybox: {message}", lines=True), file=sys.stderr)
    return 1
