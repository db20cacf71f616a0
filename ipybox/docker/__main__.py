"""`python -m ipybox.docker`: the same as `ipybox docker`, where ipybox is not installed."""

from ipybox.docker.command import run
from ipybox.docker.options import parser

if __name__ == "__main__":
    run(parser().parse_args())
