"""The messages between application and gateway on the link, their one shared descriptor.

The link is an AF_UNIX stream socket, the gateway's standard input. Descriptors travel on it with one-byte messages:

- application → gateway: `CONNECTION`, one connected stream socket for the gateway's HTTP server.
- gateway → application: `LISTENER`, once: the listening socket that code in the kernel connects to for tool calls. The
  application accepts on it, so it alone has the accepted connections, and no process relays their bytes.
- gateway → application: `READY`, once: the gateway answers HTTP requests.

End of file on the link tells the gateway to exit, and tells the application that the gateway has exited.
"""

from typing import TypedDict

CONNECTION = b"c"
LISTENER = b"l"
READY = b"r"

#: The message type of sync markers in a kernel's output (`ipybox.guest.streams`).
MARK = "ipybox_mark"

#: Maximum bytes of a message from a kernel. A larger one would end the connection to it.
MAX_MESSAGE_BYTES = 256 << 20

#: A field of a kernel's `dead` status: an `ExitStatus`.
EXIT = "ipybox_exit"


class ExitStatus(TypedDict):
    """How a kernel's process ended."""

    #: The exit status, negative for a signal.
    status: int
    #: Whether the operating system killed a process for lack of memory while the kernel ran.
    oom: bool


#: Files in the guest's own directory, which the gateway reads and removes: the environment of kernels, and the token
#: that clients on a port must send. Neither is in the gateway's own environment, because kernels are forked from it.
ENVIRONMENT_FILE, TOKEN_FILE = "environment.json", "token"

#: The environment variable that makes a kernel request approval before it starts programs, and its values: approval
#: covers all programs, or only shell escapes.
SHELL_VARIABLE = "IPYBOX_SHELL_COMMANDS"
APPROVE_COMMANDS, REQUIRE_ESCAPE = "approve", "escape"

#: The environment variable with a kernel's working directory, unless that is the workspace.
DIRECTORY_VARIABLE = "IPYBOX_DIRECTORY"

#: A field of the gateway's response about a new kernel: the modules that are not preloaded, each with a reason: it
#: can't be imported, its import starts threads or opens descriptors, or the import has not finished yet.
NOT_PRELOADED = "ipybox_not_preloaded"
FAILS, STARTS_THREADS, OPENS_DESCRIPTORS, IMPORTING = "fails", "threads", "descriptors", "importing"

#: Maximum descriptors in one message; the platform closes any others.
MAX_FDS = 8

#: A field of an `execute_request`: what to set before its code runs, with the fields `VARIABLES` and `ENVIRONMENT`.
INPUTS = "ipybox_inputs"

#: The variables to set, a list of objects with the fields `name` and `encoding`; the message's buffers are their data.
VARIABLES = "variables"

#: The environment variables that the kernel has while the code runs.
ENVIRONMENT = "environment"

#: A field of an `execute_request` that reads a variable instead of running code: its name. The reply has the field
#: `ENCODING`, and the data as its buffer.
READ = "ipybox_read"
ENCODING = "ipybox_encoding"

#: A field of an `execute_reply` whose error is that a variable could not be set or read. No code has run.
VARIABLE_ERROR = "ipybox_variable_error"
