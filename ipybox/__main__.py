"""Makes `python -m ipybox` the same as `ipybox`."""

from ipybox.cli import main

main()
