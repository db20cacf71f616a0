"""A Jupyter server that ipybox does not run, in place of the `KernelGateway` that the application starts."""

import contextlib
import logging
import socket
from collections.abc import Callable, Generator, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path

import aiohttp

from ipybox.jupyter_engine.guest_files import GuestFiles
from ipybox.jupyter_engine.kernel import ServerKernel
from ipybox.kernel_mgr.display_forms import object_of
from ipybox.kernel_mgr.gateway_client import GatewayClient
from ipybox.support.endpoint import Endpoint
from ipybox.support.errors import GatewayError
from ipybox.support.printable import printable

logger = logging.getLogger(__name__)

#: Names of kernel specifications in an error message.
MAX_NAMES = 20


class JupyterGateway:
    """Connects to a Jupyter server; nothing of it is started or stopped but kernels.

    It has the members of `KernelGateway` that `GatewayOwner`, `KernelLifecycle` and `CellRunner` use.

    Args:
        endpoint: The address of the server.
        kernel_name: The name of the kernel specification for new kernels.
        kernel_id: The id of a running kernel that an executor can adopt, if there is one.
        kernel_env: Environment variables for kernels.
        packages: The directory of the generated packages, which need not exist.
        init_timeout: Seconds in which a kernel must answer.
        on_tool_connection: Receives each connection of a kernel to the tool server.
    """

    #: What only a gateway process of this machine has.
    port: int | None = None
    spawned = False
    #: What the start waits for, if it is known, as with an engine; here it never is.
    waits_for = ""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        kernel_name: str,
        kernel_id: str | None,
        kernel_env: Mapping[str, str],
        packages: Path,
        init_timeout: float,
        on_tool_connection: Callable[[socket.socket], object],
    ):
        self.endpoint = endpoint
        self.running = False
        #: Messages about exceeded limits; always empty, because limits are those of the server.
        self.exceeded: dict[str, str] = {}
        #: Notices for the session.
        self.notices: list[str] = []
        self._kernel_name = kernel_name
        self._kernel_id = kernel_id
        self._kernel_env = kernel_env
        self._files = GuestFiles(packages)
        self._init_timeout = init_timeout
        self._on_tool_connection = on_tool_connection

    def kernel(self, token: str, *, adopt: bool) -> ServerKernel:
        """Returns a kernel that is not created yet.

        Args:
            token: The kernel's token for the tool server.
            adopt: Whether it is the kernel with the given id, if there is one.
        """
        return ServerKernel(
            self.endpoint,
            self._kernel_name,
            self._kernel_env,
            init_timeout=self._init_timeout,
            adopted=self._kernel_id if adopt else None,
            files=self._files,
            accept=self._on_tool_connection,
            token=token,
            notices=self._note,
        )

    async def start(self) -> None:
        """Checks that the server answers, accepts the token and has the kernel specification.

        Raises:
            GatewayError: If it does not; the message says what to change.
        """
        client = GatewayClient(self.endpoint, lambda: None)
        client.open()
        try:
            specifications = await client.call("GET", "/api/kernelspecs")
        except (aiohttp.ClientError, OSError) as exc:
            raise GatewayError(f"can't connect to the Jupyter server at {self.endpoint.url}: {_problem(exc)}") from exc
        except GatewayError as exc:
            raise GatewayError(f"the Jupyter server at {self.endpoint.url} refused: {_advice(str(exc))}") from exc
        finally:
            await client.close()
        names = sorted(object_of(specifications.get("kernelspecs")))
        if self._kernel_id is None and self._kernel_name not in names:
            known = ", ".join(printable(name[:100]) for name in names[:MAX_NAMES]) or "none"
            raise GatewayError(f"the Jupyter server has no kernel named {self._kernel_name!r}: it has {known}")
        self.running = True

    async def stop(self, timeout: float = 0) -> None:
        """Notes that the server is not used anymore. Each `KernelClient` has ended its kernel."""
        self.running = False

    @contextlib.contextmanager
    def measure_cell(self, kernel_id: str, on_cpu_exceeded: Callable[[str], object]) -> Generator[None]:
        """Does nothing: limits are those of the server."""
        yield

    async def explain(self, text: str, tool_texts: Iterable[str] = ()) -> list[str]:
        """Returns no explanations: there is no sandbox."""
        return []

    async def send_files(self) -> list[str]:
        """Sends files of the workspace to where code runs, as with an engine; here, that is the workspace."""
        return []

    async def collect_files(self) -> list[str]:
        """Brings files of the workspace back from where code runs, as with an engine; here, that is the workspace."""
        return []

    async def loss(self) -> str | None:
        """Returns why the server is lost, if it is known, as with an engine; None here."""
        return None

    def _note(self, notice: str) -> None:
        if notice not in self.notices:
            self.notices.append(notice)


def _problem(exc: Exception) -> str:
    if isinstance(exc, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted ({exc.certificate_error}): pass the certificate of its CA as gateway_ca"
    return str(exc) or type(exc).__name__


def _advice(refusal: str) -> str:
    for status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        if f"HTTP {status.value} " in refusal:
            return f"gateway_token is missing or wrong (HTTP {status.value})"
    return refusal
