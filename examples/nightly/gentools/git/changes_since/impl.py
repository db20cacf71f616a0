"""What changed in a git repository since a time: implementation."""

import re

from mcptools.git import git_log

from .api import Change

#: A commit as the server prints it. The rest of the message follows on further lines.
COMMIT = re.compile(r"^Commit: .*\nAuthor: (.*)\nDate: .*\nMessage: (.*)$", re.MULTILINE)


def run(repository: str, since: str, max_count: int) -> list[Change]:
    """Reads the log that the server prints."""
    log = git_log.run(git_log.Params(repo_path=repository, max_count=max_count, start_timestamp=since))
    return [Change(author=author, subject=subject) for author, subject in COMMIT.findall(log)]
