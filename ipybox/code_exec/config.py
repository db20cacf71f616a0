"""The options of a `CodeExecutor`, defined once, and values derived from them.

`CodeExecutor` accepts the fields of `ExecutorConfig` as its parameters; the command line (`cli.option_table`) makes an
`ExecutorConfig`. An executor, its siblings and their `SharedRuntime` share one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from ipybox.code_exec.option_checks import check_types
from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits
from ipybox.kernel_mgr.timeouts import KERNEL_INIT_TIMEOUT
from ipybox.sandbox.settings import SandboxConfig, SandboxSettings, optional_settings
from ipybox.workspace import env_file
from ipybox.workspace.writable import WritablePlaces

if TYPE_CHECKING:
    from ipybox.audit.audit import AuditLog, Detail
    from ipybox.audit.notebook.session import SessionHistory
    from ipybox.audit.redaction import Redactor
    from ipybox.kernel_mgr.gateway import Gateway, GatewaySetup
    from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer
    from ipybox.support.acceptor import AcceptedSocket
    from ipybox.tool_exec.approval.policy import ApprovalPolicy
    from ipybox.tool_exec.approval.request import ApprovalRequest
    from ipybox.tool_exec.function_tools import FunctionTools


@dataclass(frozen=True)
class ExecutorConfig:
    """The options of a `CodeExecutor`.

    Attributes:
        sandbox: Whether the kernel runs inside Anthropic's sandbox-runtime. After the first start, this process
            imports no module from places that code can write, such as the working directory.
        sandbox_config: A sandbox settings file in srt's format, or the name of a profile: `default` or `workspace`
            (`ipybox.sandbox.settings.load_settings`). A file is trusted, wherever it is, and read when the executor is
            created.
        allowed_domains: Hosts that can be reached from the sandbox in addition to those of its settings, such as
            `example.org`, `*.example.org` or `example.org:443`.
        working_dir: The kernel's working directory, by default that of this process.
        approval_policy: Rules for tool calls, or their file: allowed calls run, denied calls fail. Calls that the rules
            ask about go to the consumer of `stream`, or to the approver of `execute`.
        approver: Decides on tool calls that no policy decides on, in executions without an approver of their own: an
            async function that accepts or rejects an `ApprovalRequest`, or for `Executor`, a plain function that
            returns whether to accept it. By default, these calls are accepted without a policy, and rejected with one.
            `CodeExecutor.stream` yields them instead.
        approval_timeout: Seconds until a tool call that is neither accepted nor rejected fails; None for no limit.
        approve_shell_cmds: Whether programs that code starts need a decision like tool calls: `!command`, `%%bash`,
            `subprocess` and the like are calls of `ipybox.shell` or `ipybox.shell_magic`. A convenience: code can avoid
            it, and only `sandbox` limits what programs can do.
        require_shell_escape: Whether code may start programs only with `!command`, `%%bash` and other magics, so that
            `subprocess` and the like fail. Requires `approve_shell_cmds`.
        images_dir: Directory for images that code displays; `images` in the working directory by default.
        tools: Functions of the application, sync or async, that code calls as tools of a server named `app`:
            `mcptools/app/` in the working directory contains a module for each. All parameters and results have types.
        variables: Values of `${VAR}` placeholders in the parameters of MCP servers, for variables that the environment
            of this process does not set. Others come from the `.env` file of the working directory, which is read
            whenever a server starts.
        kernel_env: Environment variables for the kernel, which does not inherit those of this process.
        memory_limit: Bytes of memory for the kernel and all processes that it starts, together; 0 for no limit.
            Defaults to no limit, or in the sandbox to half of the machine's memory.
        cpu_seconds: CPU time of one cell, over all its processes; None for no limit.
        process_limit: Number of concurrent processes, including the kernel; None for no limit.
        audit: The content of the audit log in the working directory: code and tool arguments without secrets (`full`),
            or only their hashes (`hash`); `off`, the default, for no log. Or the log itself, which can be shared.
        notebook_bytes: Bytes of cells and outputs that each session keeps in memory for `notebook`, which says if the
            oldest cells were dropped. With 0, nothing is kept, and no notebook can be created.
        preload: Modules to preload in every kernel, such as `["pandas"]` (Linux). Kernels share their memory, and
            importing them takes no time. They come from the environment or installed packages, not from the working
            directory. A module that can't be imported, starts threads or opens descriptors is not preloaded; the first
            result contains a notice about it.
        spare_kernel: Whether the gateway keeps a kernel ready for the next session or reset (Linux), which then takes
            about a third of the time. It has no session's token or variables, doesn't count towards limits, and takes
            about 17 MiB. The gateway creates it when it starts, and when all its kernels are idle.
        engine: Where kernels run, by default on this machine: the name of an engine in the user's `engines.yaml`
            (`docs/other-machines.md`), or a command, as a list, that runs `python -m ipybox.node` on another machine,
            such as one with `srun`. With an engine, this process imports no module from the working directory after
            the first start, and tool calls need a seal.
        queue_timeout: Seconds for an engine to provide a node.
        connect_timeout: Seconds for an MCP server to start and answer.
        kernel_init_timeout: Seconds for a new kernel to start and answer.
        log_level: Logging level of the gateway process.
        tool_server_host: Host on which the tool server listens if it has a port.
        tool_server_port: Port on which the tool server also listens; None for no port.
        kernel_gateway_host: Host on which the kernel gateway listens if it has a port.
        kernel_gateway_port: Port on which the kernel gateway also listens; None for no port.

    Raises:
        AuditError: If the audit log can't be written.
        PolicyError: If the policy can't be read or is invalid.
        SandboxError: If the sandbox settings can't be read or are invalid.
        TypeError: If an option has the wrong type.
        ValueError: If there are sandbox settings without `sandbox`, a limit is so low that no kernel can run, a
            function can't be a tool, an MCP server named `app` is registered in the working directory,
            `require_shell_escape` is set without `approve_shell_cmds`, a timeout is not positive, `preload` names no
            module, or an option does not apply to kernels of an engine.
    """

    tool_server_host: str = "localhost"
    tool_server_port: int | None = None
    kernel_gateway_host: str = "localhost"
    kernel_gateway_port: int | None = None
    kernel_env: Mapping[str, str] | None = None
    _: KW_ONLY
    images_dir: Path | str | None = None
    approval_timeout: float | None = 60
    connect_timeout: float = 30
    kernel_init_timeout: float = KERNEL_INIT_TIMEOUT
    engine: Sequence[str] | str | None = None
    queue_timeout: float = 600
    sandbox: bool = False
    sandbox_config: SandboxConfig | None = None
    log_level: str = "WARNING"
    working_dir: Path | str | None = None
    memory_limit: int | None = None
    cpu_seconds: float | None = None
    process_limit: int | None = None
    allowed_domains: Sequence[str] = ()
    approval_policy: "ApprovalPolicy | Path | str | None" = None
    approver: "Callable[[ApprovalRequest], object] | None" = None
    approve_shell_cmds: bool = False
    require_shell_escape: bool = False
    audit: "AuditLog | Detail | Literal['off'] | None" = None
    variables: Mapping[str, str] | None = None
    tools: Sequence[Callable[..., Any]] = ()
    preload: Sequence[str] = ()
    spare_kernel: bool = True
    notebook_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        check_types(self)
        if self.require_shell_escape and not self.approve_shell_cmds:
            raise ValueError("require_shell_escape=True requires approve_shell_cmds=True")
        # These depend on the current directory and on files, so they are read when the executor is created.
        _ = self.workspace, self.images, self.policy, self.functions

    @cached_property
    def workspace(self) -> Path:
        """The working directory of the kernels, without links in its path."""
        workspace = self._directory.resolve()
        try:
            str(workspace).encode()  # settings of the sandbox and of pip contain it
        except UnicodeEncodeError:
            raise ValueError(
                f"the path of the working directory is not valid UTF-8: {str(workspace)!a}: rename it"
            ) from None
        return workspace

    @cached_property
    def untrusted_root(self) -> Path | None:
        """The workspace, if code is confined to it or remote; then tool calls need a seal, and no link is followed."""
        return self.workspace if self.sandbox or self.engine is not None else None

    @cached_property
    def new_gateway(self) -> "Callable[[GatewaySetup, AcceptedSocket, Callable[..., object]], Gateway]":
        """Creates gateways, on this machine or with the engine, which is looked up once.

        Raises:
            TypeError, ValueError: If there is no such engine, or a gateway port is set for it.
        """
        if self.engine is None:
            from ipybox.kernel_mgr.server import KernelGateway

            place = None if self.working_dir is None else Path(self.working_dir)
            host, port = self.kernel_gateway_host, self.kernel_gateway_port
            return lambda setup, accept, _: KernelGateway(host, port, place, setup=setup, on_tool_connection=accept)
        if self.kernel_gateway_port is not None:
            raise ValueError(
                "kernel_gateway_port can't be used with an engine: the engine's gateway runs on another machine"
            )
        from ipybox.remote.application.gateway import EngineGateway
        from ipybox.remote.application.settings import find_engine

        engine = find_engine(self.engine, self.writable_places)
        return partial(EngineGateway, engine, self.workspace, self.queue_timeout)

    @cached_property
    def images(self) -> Path:
        """The directory for displayed images."""
        return self._directory / "images" if self.images_dir is None else Path(self.images_dir)

    @property
    def _directory(self) -> Path:
        if self.working_dir is not None:
            return Path(self.working_dir)
        try:
            return Path.cwd()
        except FileNotFoundError as exc:
            reason = "the working directory of this process was deleted: change to another one or set `working_dir`"
            raise FileNotFoundError(exc.errno, reason) from None

    @cached_property
    def settings(self) -> SandboxSettings | None:
        """The sandbox settings, read once; None without a sandbox.

        Raises:
            SandboxError: If the settings can't be read or are invalid.
            ValueError: If there are settings without `sandbox`.
        """
        return optional_settings(self.sandbox, self.sandbox_config, self.allowed_domains)

    @cached_property
    def limits(self) -> ResourceLimits:
        """The resource limits of the kernels; raises a ValueError if one is so low that no kernel can run."""
        return ResourceLimits(
            memory=self.memory_limit or None,
            default_memory=self.sandbox and self.memory_limit is None,
            cpu_seconds=self.cpu_seconds,
            processes=self.process_limit,
        )

    def file_transfer(self, allowed: Sequence[Path | str] = (".",), root: Path | None = None) -> "FileTransfer":
        """Returns an object that copies files to and from allowed directories of the workspace, or of `root`.

        Raises:
            ValueError: If a directory can't be allowed.
        """
        from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer

        return FileTransfer(root or self.workspace, allowed, settings=lambda: self.settings)

    def placeholder_values(self) -> dict[str, str]:
        """Returns the current values of `${VAR}` placeholders that this process's environment does not set."""
        return {**self._env_file.read(), **(self.variables or {})}

    @cached_property
    def _env_file(self) -> env_file.FollowedFile:
        return env_file.FollowedFile(self.workspace / env_file.NAME, lambda: env_file.read_env_file(self.workspace))

    @cached_property
    def writable_places(self) -> WritablePlaces:
        """The places that code can write, as they are when first asked for; the application doesn't trust them."""
        return WritablePlaces(self.workspace, self.settings, remote=self.engine is not None)

    @cached_property
    def policy(self) -> "ApprovalPolicy | None":
        """The approval policy, read once.

        Raises:
            PolicyError: If the rules can't be read or are invalid.
            TypeError: If it is neither a policy nor a path.
        """
        if self.approval_policy is None:
            return None
        from ipybox.tool_exec.approval.policy import ApprovalPolicy

        if isinstance(self.approval_policy, ApprovalPolicy):
            return self.approval_policy
        if not isinstance(cast(object, self.approval_policy), Path | str):
            raise TypeError(
                f"approval_policy must be an ApprovalPolicy or the path of a file, not {self.approval_policy!r}: "
                "pass rules as YAML text to ApprovalPolicy(text)"
            )
        return ApprovalPolicy.load(self.approval_policy, self.workspace)

    @cached_property
    def functions(self) -> "FunctionTools | None":
        """The functions in `tools` that code can call.

        Raises:
            ValueError: If a function can't be a tool, or an MCP server has the name of their package.
        """
        if not self.tools:
            return None
        from ipybox.code_exec.function_package import check_package
        from ipybox.tool_exec.function_tools import FunctionTools

        functions = FunctionTools(self.tools)
        check_package(self.workspace)
        return functions

    def session_history(self, audit: "AuditLog | None") -> "SessionHistory | None":
        """Returns a history that keeps a session for its notebook, without known secrets; None to keep nothing."""
        if self.notebook_bytes <= 0:
            return None
        from ipybox.audit.notebook.session import SessionHistory

        return SessionHistory(self.notebook_bytes, lambda: self._redactor if audit is None else audit.redactor)

    @cached_property
    def _redactor(self) -> "Redactor":
        from ipybox.audit.redaction import workspace_redactor

        return workspace_redactor(self.workspace, {**(self.variables or {}), **(self.kernel_env or {})})

    def opened_audit_log(self) -> "AuditLog | None":
        """Returns the opened audit log; None if auditing is off.

        Raises:
            AuditError: If the log can't be written.
        """
        if self.audit is None or self.audit == "off":
            return None
        from ipybox.audit.audit import AuditLog

        audit = self.audit if isinstance(self.audit, AuditLog) else AuditLog(self.workspace, self.audit)
        audit.add_secrets({**(self.variables or {}), **(self.kernel_env or {})})
        audit.open()
        return audit
