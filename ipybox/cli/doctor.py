"""`ipybox doctor`: a table of what of ipybox works on this machine, and what to install for the rest."""

from rich.console import Console
from rich.text import Text

from ipybox.cli.diagnosis import MODES, asked_modes, examine_modes
from ipybox.sandbox.findings import Finding
from ipybox.support.printable import printable


def doctor(*, sandbox: bool = False, docker: bool = False) -> int:
    """Prints what works and what is missing to stdout, and returns the exit status: 0 if the asked-for modes work.

    Args:
        sandbox: Whether the sandbox is asked for.
        docker: Whether Docker mode is asked for. Without either it is the plain mode, which needs Python only.
    """
    found = examine_modes(MODES, try_sandbox=sandbox)
    console = Console(highlight=False, soft_wrap=True)
    for findings in found.values():
        for finding in findings:
            console.print(_row(finding, console.encoding))
    console.print()
    asked = asked_modes(sandbox, docker)
    works = True
    for mode, findings in found.items():
        problems = [str(finding) for finding in findings if finding.problem is not None]
        if mode in asked:
            works = works and not problems
        if mode == "other":
            verdict = "also missing:" if problems else ""
        elif problems:
            verdict = f"{mode} mode: can't work"
        else:
            verdict = f"{mode} mode: " + ("nothing is missing; --sandbox tries it" if _untried(findings) else "works")
        style = "red" if problems and mode in asked else ""
        for line in filter(None, [verdict, *(f"  {problem}" for problem in problems)]):
            console.print(Text(_encodable(line, console.encoding), style=style))
    return 0 if works else 1


def _untried(findings: list[Finding]) -> bool:
    """Whether these are findings of the sandbox that was not asked for."""
    what = {finding.what for finding in findings}
    return "srt" in what and "sandbox" not in what


def _row(finding: Finding, encoding: str) -> Text:
    if finding.problem is None:
        mark, style = "ok", "green"
    elif finding.found is None:
        mark, style = "missing", "yellow"
    else:
        mark, style = "broken", "red"
    return Text.assemble((f"{mark:9}", style), f"{finding.what:17}{_encodable(finding.found or '', encoding)}".rstrip())


def _encodable(text: str, encoding: str) -> str:
    """Returns what can be printed of the text, without what stdout can't encode."""
    return printable(text).encode(encoding, "replace").decode(encoding)
