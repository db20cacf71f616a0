"""The options that say where kernels run, if not on this machine.

Like `option`, it needs only the standard library.
"""

from ipybox.cli.option import Command, Option, PluginSetting, Receiver
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
)
