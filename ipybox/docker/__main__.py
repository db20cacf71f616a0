"""`python -m ipybox.docker`: the same as `ipybox docker`, where ipybox is not installed."""

from ipybox.cli.docker_command import run
from ipybox.cli.docker_options import docker_parser

if __name__ == "__main__":
    run(docker_parser().parse_args())
