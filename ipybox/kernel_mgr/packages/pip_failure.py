"""The errors of pip: the lines of its output that say the reason."""

import re

from ipybox.kernel_mgr.packages.store import InstallError
from ipybox.support.way_in import setting

REPORTED_LINES = 25

# Lines of pip that are not the reason.
_NOISE = re.compile(
    r"\[notice\]|ERROR: ResolutionImpossible|To fix this you could try|\d\. (loosen|remove)|WARNING:|hint:"
    r"|note: This error originates|╰─> See above"
)
_CAUSE = re.compile(r"connection broken by ['\"](.+)['\"]: /")

#: What pip's constraints are.
CONSTRAINT = (
    "The constraints are the package versions in ipybox's own environment, which kernels share: request a compatible "
    "version"
)

_REFUSED = re.compile(r"Tunnel connection failed: 403|CONNECT tunnel failed, response 403")


def refused() -> str:
    """Returns the reason for a host that the sandbox refuses, and where the user allows it."""
    return (
        "The sandbox blocked a host. Packages can come from the package index, the requested URL, and hosts in "
        "'network.allowedDomains' of the sandbox settings; builds can reach only the latter. To allow a host, list it "
        f"in {setting('allowed_domains')}"
    )


class PipError(InstallError):
    """pip has failed; the message is what it said."""

    def __init__(self, reason: str, *, offline: bool):
        super().__init__(reason)
        #: Whether the reason may be that pip could not reach its index.
        self.offline = offline


def pip_failure(output: str, code: int) -> PipError:
    """Returns the error of a pip that has ended with a code, given its output."""
    lines = output.splitlines()
    starts = [index for index, line in enumerate(lines) if line.strip().lower().startswith(("error:", "fatal:"))]
    said = lines[starts[0] :] if starts else lines
    said = [line for line in said if line.strip() and not _NOISE.match(line.strip())]
    # Builds that fail in a process of pip's own are reported twice, once with an indentation.
    reason = list({line.strip(): line.removeprefix("ERROR: ") for line in said}.values())
    reason = reason[:2] + reason[2:][-REPORTED_LINES:]
    causes = [match[1] for line in lines if (match := _CAUSE.search(line))]
    if causes:
        reason.append(f"can't reach the package index: {causes[-1]}")
    if "(constraint)" in output:
        reason.append(CONSTRAINT)
    if _REFUSED.search(output):
        reason.append(refused())
    return PipError("\n".join(reason) or f"pip exited with code {code}", offline=bool(causes))
