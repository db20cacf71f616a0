"""`python -m ipybox.docker --name=value …`: `ipybox docker` for programs, without an installed ipybox."""

import sys

from ipybox.docker.request import run

if __name__ == "__main__":
    run(sys.argv[1:])
