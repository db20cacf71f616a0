"""Reports wording that the project avoids in comments, docstrings, messages and documentation.

    python docs/check_terms.py    fails with a line `file:line: "wording": what to write` for each

`make lint` runs it. Code, also in backticks, is not checked. codespell checks the spelling.
"""

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: What is checked: prefixes of paths.
CHECKED = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    "docs/",
    "skills/",
    "ipybox/",
    "plugins/",
    "benchmarks/",
    "examples/",
)

SKIPPED = ("docs/decisions/", "docs/generated/", "docs/coverage.md", "plugins/package/")

_KNOWN = "tests and users know this message; later"

#: Paths that are not checked, or places of one wording, with the reason.
EXCEPTIONS = {
    "docs/check_terms.py": "names the wording",
    "ipybox/codeact/vocabulary.py": "lists words that people search for",
    "benchmarks/search/": "contains queries as people write them",
    "benchmarks/codegen/subjects/load.py:verdicts": "names a key",
    "benchmarks/example.py:gentools": "contains code and output",
    "examples/github_commits/run.py:gentools": "contains code",
    "examples/nightly/run.py:gentools": "contains code",
    "ipybox/codeact/checker.py:gentools": "the output of `check()` names the directory",
    "ipybox/codeact/listing.py:gentools": "the output of `tools()` names the directory",
    "ipybox/code_exec/cell_runner.py:begun": _KNOWN,
    "ipybox/kernel_mgr/output_collector.py:left out": _KNOWN,
}

#: Wording, as a regular expression in which a space stands for any white space, and what to write in its place.
TERMS = {
    r"that which|those which": "the noun",
    r"what there is|what is there": "the noun",
    r"those who|whoever": "the person or the component",
    r"(?<=[.:;]\s)who": "the person or the component",
    r"(as|because|for|if|when|while) who": "the person or the component",
    r"ours|theirs": "the owner",
    r"nobody|somebody": "the person or the component",
    r"(is|are|was|were|be|been|being) (told|said)": "who reports it, and where",
    r"(is|are|was|were|have|has|had|gives|returns?|if) (?-i:none)": "`None`, empty, invalid or no + noun",
    r"none but": "only",
    r"put(s|ting)? out": "print, output",
    r"(leave|leaves|leaving|left) out": "drop, omit, truncate",
    r"besides?": "next to, in addition to",
    r"by means of": "with, through",
    r"be it": "whether",
    r"there need be no": "… is not needed",
    r"at once": "immediately, concurrently, atomically",
    r"meanwhile": "while …, in the background",
    r"begun": "started",
    r"anew": "again, new",
    r"(is|are|was|were) over": "finished, timed out, expired",
    r"(?<!not\s)(have|has|had) to": "must, needs to",
    r"mend(s|ed|ing)?": "fix",
    r"(?-i:gentools?)(?!/)": "saved code action",
    r"verdicts?": "result, check result",
    r"far side|the inside|the guest's side": "kernel, guest or gateway",
    r"cut short": "interrupt, cancel, truncate",
}
_ALTERNATIVES = "|".join(f"(?P<t{number}>{term})" for number, term in enumerate(TERMS))
_TERM = re.compile(rf"\b(?:{_ALTERNATIVES})\b".replace(" ", r"\s+"), re.IGNORECASE)
_ADVICE = list(TERMS.values())

#: Stands for what is not prose, so that wording does not reach from one text to the next.
_CODE = "\0"
_STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def main() -> int:
    """Prints what is found; returns the exit status."""
    faults = [fault for path in _checked_files() for fault in _faults(path)]
    print("\n".join(faults) or "The wording is fine.")
    return bool(faults)


def _checked_files() -> Iterator[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    for path in listed.split("\0"):
        if path.endswith((".py", ".md")) and path.startswith(CHECKED) and not path.startswith((*SKIPPED, *EXCEPTIONS)):
            yield path


def _faults(path: str) -> Iterator[str]:
    text = (ROOT / path).read_text()
    prose = _prose_of_python(text) if path.endswith(".py") else _prose_of_markdown(text)
    prose = re.sub(r"``.+?``|`[^`]+`", _blank, prose)
    for match in _TERM.finditer(prose):
        line = prose.count("\n", 0, match.start()) + 1
        if f"{path}:{match[0]}" in EXCEPTIONS:
            continue
        advice = _ADVICE[int((match.lastgroup or "t0")[1:])]
        yield f'{path}:{line}: "{" ".join(match[0].split())}": {advice}'


def _prose_of_python(source: str) -> str:
    """Returns the comments and strings at their places, with code blanked out."""
    lines = source.split("\n")
    prose = [re.sub(r"\S", _CODE, line) for line in lines]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type in _STRINGS and " " in token.string):  # one word is data
            _show(lines, prose, token)
    return "\n".join(prose)


def _show(lines: list[str], prose: list[str], token: tokenize.TokenInfo) -> None:
    (first, start), (last, end) = token.start, token.end
    for number in range(first, last + 1):
        line = lines[number - 1]
        begin = start if number == first else 0
        stop = end if number == last else len(line)
        shown = re.sub(r"^(#:?|\w*['\"]+)|['\"]+$", lambda mark: " " * len(mark[0]), line[begin:stop])
        if token.string.startswith("f"):
            shown = re.sub(r"\{[^{}]*\}", _blank, shown)
        prose[number - 1] = prose[number - 1][:begin] + shown + prose[number - 1][stop:]


def _prose_of_markdown(text: str) -> str:
    """Returns the text with blocks of code and the targets of links blanked out."""
    for pattern in (r"^(?P<fence>```+)(.|\n)*?^(?P=fence)", r"\]\([^)]*\)"):
        text = re.sub(pattern, _blank, text, flags=re.M)
    return text


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"\S", _CODE, match[0])


if __name__ == "__main__":
    sys.exit(main())
