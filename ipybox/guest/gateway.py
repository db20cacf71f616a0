"""The gateway process: a Jupyter Kernel Gateway that does not listen on any port.

Its standard input is the link to the application (`ipybox.guest.protocol`): HTTP connections arrive over it as
descriptors, and at end of file, the gateway exits with all its kernels. Code in the kernels reaches the application's
tool server through a loopback port, whose listening socket this process passes to the application.

In sandbox mode, it first drops privileges that it does not need. It forks the template process, and imports the gateway
while the template imports what kernels need.
"""

import argparse
import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

from ipybox.guest.process import close_input
from ipybox.guest.protocol import ENVIRONMENT_FILE, LISTENER, TOKEN_FILE
from ipybox.guest.template import fork_template
from ipybox.guest.template_client import KernelTemplate
from ipybox.support.signals import reset_signals

#: Names the program that the host runs for each crash. If the user is root, bubblewrap leaves it writable.
CORE_PATTERN = "/proc/sys/kernel/core_pattern"


def detach_link() -> socket.socket:
    """Moves the link off standard input, so that no kernel inherits it."""
    link = socket.socket(fileno=os.dup(0))
    link.setblocking(False)
    close_input()
    return link


def offer_tool_port(link: socket.socket) -> int:
    """Gives the application a listening socket on the guest's loopback, and returns its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        socket.send_fds(link, [LISTENER], [listener.fileno()])
        return listener.getsockname()[1]


def read_environment(runtime_dir: Path) -> dict[str, str]:
    """Returns the environment of kernels, which the application wrote to a file."""
    file = runtime_dir / ENVIRONMENT_FILE
    environment: dict[str, str] = json.loads(file.read_text())
    file.unlink()
    with suppress(OSError):  # there is no /proc
        if os.readlink("/proc/self") != str(os.getpid()):  # it belongs to another namespace
            # joblib's processes would look themselves up there and fail. Without them, it runs its jobs one by one.
            environment.setdefault("JOBLIB_MULTIPROCESSING", "0")
    return environment


def require_token(runtime_dir: Path) -> None:
    """Makes the gateway require the token that the application wrote to a file, if it wrote one."""
    with suppress(FileNotFoundError):
        os.environ["KG_AUTH_TOKEN"] = (runtime_dir / TOKEN_FILE).read_text()
        (runtime_dir / TOKEN_FILE).unlink()


def _arguments() -> argparse.Namespace:
    """Returns the arguments with which `kernel_mgr.gateway_launch` starts this process."""
    parser = argparse.ArgumentParser(prog="ipybox.guest.gateway")
    parser.add_argument("--log-level", default="WARNING")
    parser.add_argument("--tools", action="store_true", help="give kernels a tool server port")
    parser.add_argument("--spare", action="store_true", help="keep a kernel ready for the next request")
    parser.add_argument("--preload", nargs="*", default=[], help="modules to preload in every kernel")
    parser.add_argument("--directory", help="where kernels run (default: the working directory)")
    parser.add_argument("--confine", action="store_true", help="drop capabilities and dangerous system calls")
    parser.add_argument("--writable", nargs="*", default=[], help="with --confine: what stays writable")
    parser.add_argument("--landlock", action="store_true", help="with --confine: exit if Landlock is missing")
    parser.add_argument("--memory-limit", type=int, help="memory limit in bytes for each kernel process")
    parser.add_argument("--process-limit", type=int, help="process limit for all kernels together")
    parser.add_argument("--space", help="any text: reserves space for the command lines of kernels")
    parser.add_argument("--proxy", action="store_true", help="pass the sandbox's proxies to kernels")
    return parser.parse_args()


def main() -> None:
    """Runs the gateway until the link is closed."""
    arguments = _arguments()
    reset_signals()
    if arguments.confine:
        from ipybox.guest.confine import confine, protect_process
        from ipybox.guest.landlock import restrict_writes

        confine()
        if not restrict_writes(arguments.writable) and (arguments.landlock or os.access(CORE_PATTERN, os.W_OK)):
            sys.exit("as root, the sandbox needs Landlock (Linux 5.19 or later): run ipybox as an ordinary user")
        protect_process()
    if arguments.directory is not None:
        os.chdir(arguments.directory)
    runtime_dir = Path(os.environ["IPYBOX_RUNTIME_DIR"])
    environment = read_environment(runtime_dir)
    if arguments.proxy:
        environment = dict(os.environ) | environment
    forked = fork_template(environment, str(runtime_dir), arguments.preload)
    template = None if forked is None else KernelTemplate(*forked, arguments.preload)
    link = detach_link()
    require_token(runtime_dir)
    if arguments.tools:
        environment["TOOL_SERVER_HOST"] = "127.0.0.1"
        environment["TOOL_SERVER_PORT"] = str(offer_tool_port(link))

    from ipybox.guest.gateway_app import run_gateway  # while the template does its own imports
    from ipybox.guest.kernel_manager import GuestKernelManager, GuestMultiKernelManager

    GuestMultiKernelManager.keep_spare = arguments.spare
    GuestKernelManager.template = template
    GuestKernelManager.environment = environment
    GuestKernelManager.memory_limit = arguments.memory_limit
    if arguments.confine:  # without a sandbox it would count all processes of the user
        GuestKernelManager.process_limit = arguments.process_limit
    run_gateway(link, str(runtime_dir), arguments.log_level)


if __name__ == "__main__":
    main()
