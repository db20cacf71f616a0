"""Makes `python -m ipybox.mcp_server` the same as `ipybox`."""

from ipybox.cli.command import main

main()
