"""`python -m ipybox.docker --name=value …`: `ipybox docker` for programs, where ipybox is not installed."""

import sys

from ipybox.cli.docker import read_options, run

if __name__ == "__main__":
    run(read_options(sys.argv[1:]))
