"""`ipybox docker`, and `python -m ipybox.docker` where ipybox is not installed."""

import argparse
import sys
from typing import NoReturn

from ipybox.cli.docker_options import container_options
from ipybox.docker.errors import DockerError
from ipybox.docker.launcher import launch
from ipybox.docker.refusal import refuse
from ipybox.support.printable import printable


def run(namespace: argparse.Namespace) -> NoReturn:
    """Serves from a container in place of this process; on an error, reports it to the user and the client, and exits.

    Args:
        namespace: The result of `docker_parser`.
    """
    try:
        launch(container_options(namespace))
    except DockerError as exc:
        reason = printable(str(exc), lines=True)
        print(f"ipybox: {reason}", file=sys.stderr, flush=True)
        refuse(reason)
        sys.exit(1)
