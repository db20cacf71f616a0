"""The options that say where kernels run, if not on this machine: an engine, or a Jupyter server.

Like `option`, it needs only the standard library.
"""

from ipybox.cli.option import Command, Option, PluginSetting, Receiver, absolute_path
from ipybox.cli.option_values import seconds

PLACE_OPTIONS = (
    Option(
        name="engine",
        help="where code runs: the name of an engine in engines.yaml of your configuration (default: this machine)",
        commands=Command.SERVE,
        receiver=Receiver.EXECUTOR,
        plugin=PluginSetting(
            "Engine",
            "Where code runs: the name of an engine in engines.yaml of your configuration, such as slurm; empty for "
            "this machine",
            ("plain", "sandbox"),
        ),
        syntax={"metavar": "NAME"},
    ),
    Option(
        name="queue_timeout",
        help="seconds in which the engine must provide a machine (default: 600)",
        commands=Command.SERVE,
        receiver=Receiver.EXECUTOR,
        syntax={"type": seconds, "metavar": "N"},
    ),
    Option(
        name="gateway_url",
        help="URL of a Jupyter server that runs the kernels; its token is in the variable IPYBOX_GATEWAY_TOKEN "
        "(default: no server)",
        commands=Command.SERVE,
        receiver=Receiver.EXECUTOR,
        plugin=PluginSetting(
            "Jupyter server",
            "The URL of a Jupyter server that runs the kernels, with its token in the environment variable "
            "IPYBOX_GATEWAY_TOKEN; empty for this machine",
            ("plain",),
        ),
        syntax={"metavar": "URL"},
    ),
    Option(
        name="gateway_ca",
        help="file with certificates in PEM format, which alone can certify that server (default: those of the system)",
        commands=Command.SERVE,
        receiver=Receiver.EXECUTOR,
        syntax={"type": absolute_path, "metavar": "FILE"},
    ),
    Option(
        name="kernel_name",
        help="kernel specification on that server, by default python3",
        commands=Command.SERVE,
        receiver=Receiver.EXECUTOR,
        syntax={"metavar": "NAME"},
    ),
)
