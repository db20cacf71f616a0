"""Re-exports the tool server's client under the name that generated packages and applications import."""

from ipybox.guest.tools.client import ToolRunner, ToolRunnerError, reset

__all__ = ["ToolRunner", "ToolRunnerError", "reset"]
