"""How a text is explained."""

from ipybox.sandbox.denials import explain_denials
from ipybox.sandbox.policy import SandboxPolicy

SOURCE = "the settings test.json"


def refused(text: str, policy: SandboxPolicy, *, macos: bool = False) -> list[str]:
    """What the hints say, up to the reason."""
    home = f"{policy.workspace.parent}/home"
    found = explain_denials(text.replace("HOME", home), policy, macos=macos)
    assert all(hint.startswith("The sandbox refused ") and "\n" not in hint for hint in found)
    return [hint.removeprefix("The sandbox refused ").replace(home, "HOME").split(": ")[0] for hint in found]
