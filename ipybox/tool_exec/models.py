"""The models of generated tool modules under the name that these import."""

from ipybox.guest.tools.models import UNSET, Among, CheckedInput, Choice, Default, Exact, Input, Output, SafeInteger

__all__ = ["UNSET", "Among", "CheckedInput", "Choice", "Default", "Exact", "Input", "Output", "SafeInteger"]
