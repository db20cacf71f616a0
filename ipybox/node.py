"""`python -m ipybox.node`: the command that an engine runs on a node. On a terminal, it only explains itself."""

import asyncio
import os
import sys

from ipybox.remote.node import serve
from ipybox.support.signals import reset_signals


def main() -> None:
    """Serves the application connected to stdin and stdout until it disconnects."""
    if sys.stdin.isatty():
        sys.exit(
            "ipybox.node can't run on a terminal: an ipybox engine starts it over pipes, see "
            "https://github.com/gradion-ai/ipybox/blob/main/docs/other-machines.md"
        )
    reset_signals()
    read_fd, write_fd = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)  # other output must not mix with frames
    os.close(null)
    asyncio.run(serve(read_fd, write_fd))


if __name__ == "__main__":
    main()
