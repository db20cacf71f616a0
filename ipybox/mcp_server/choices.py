"""The values of the MCP server's options, for its classes and the command line. It needs the standard library only."""

from pathlib import Path
from typing import Literal

#: How tool calls are approved: all of them, by the user, or by the rules of a file.
Approval = Literal["auto", "ask"] | Path

#: What the audit log contains.
AuditOption = Literal["full", "hash", "off"]

#: How images are returned: as paths of their files, as images for the model, or as both.
Images = Literal["link", "inline", "both"]

#: Instructions with all that an agent needs, or, at a lower cost of context, for an agent with the codeact skill.
Instructions = Literal["full", "brief"]
