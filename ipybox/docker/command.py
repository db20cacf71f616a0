"""`ipybox docker`, and `python -m ipybox.docker` where ipybox is not installed."""

import argparse
import sys
from typing import NoReturn

from ipybox.docker.errors import DockerError
from ipybox.docker.launcher import launch
from ipybox.docker.options import options
from ipybox.docker.refusal import refuse
from ipybox.printable import printable


def run(namespace: argparse.Namespace) -> NoReturn:
    """Serves from a container in place of this process; if that is impossible, tells people and the client, and exits.

    Args:
        namespace: What `ipybox.docker.options.parser` has parsed.
    """
    try:
        launch(options(namespace))
    except DockerError as exc:
        reason = printable(str(exc), lines=True)
        print(f"ipybox: {reason}", file=sys.stderr, flush=True)
        refuse(reason)
        sys.exit(1)
