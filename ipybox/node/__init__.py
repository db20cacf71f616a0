"""What runs on the node of an engine: `python -m ipybox.node`, and the wire between it and the application.

The application is at the other end of standard input and output (`ipybox.engine`). It imports from here only what both
ends say to each other: `protocol`, `connection` and `tunnel`.
"""
