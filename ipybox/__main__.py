"""Makes `python -m ipybox` the same as `ipybox`."""

from ipybox.cli.command import main

main()
