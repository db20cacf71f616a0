"""What host and guest say to each other over the link, their one shared descriptor.

The link is an AF_UNIX stream socket, the guest's standard input. Descriptors travel on it beside one-byte
messages:

- host → guest: `CONNECTION`, one connected stream socket for the gateway's HTTP server.
- guest → host: `LISTENER`, once: the listening socket that code in the kernel connects to for tool calls. The
  host accepts on it, so the accepted connections belong to the host alone and nobody relays their bytes.
- guest → host: `READY`, once: the gateway answers HTTP requests.

End of file on the link orders the guest to end, and tells the host that the guest has ended.
"""

CONNECTION = b"c"
LISTENER = b"l"
READY = b"r"

#: The type of the messages that are marks in a kernel's output (`ipybox.guest.marks`).
MARK = "ipybox_mark"

#: In the guest's own directory: the environment of kernels, which the gateway takes and removes.
ENVIRONMENT_FILE = "environment.json"

#: At most this many descriptors are taken from one message; the platform closes the ones that don't fit.
MAX_FDS = 8
