"""The report of `ipybox check` comes from a kernel, in which saved code could print another one."""

import json

import pytest

from ipybox.codeact.checker import Report

CHECKED = {"saved code action": 1, "output parser": 0}
PROBLEM = {"path": "a.py", "line": 2, "message": "it is wrong", "remedy": "fix it"}


def test_only_the_last_line_is_the_report():
    report = {"checked": CHECKED, "problems": [PROBLEM]}

    found = Report.read(f"printed by an import\n\n{json.dumps(report)}")

    assert found.checked == CHECKED
    (problem,) = found.problems
    assert str(problem) == "a.py:2: it is wrong; fix it"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "ok: 1 gentool",
        "[" * 100_000,
        '{"checked": {"saved code action": Infinity, "output parser": 0}, "problems": []}',
        json.dumps({"checked": CHECKED}),
        json.dumps({"checked": {"anything else": 1}, "problems": []}),
        json.dumps({"checked": CHECKED, "problems": 1}),
        json.dumps({"checked": CHECKED, "problems": [{**PROBLEM, "line": "x"}]}),
        json.dumps({"checked": CHECKED, "problems": [{"path": "a.py"}]}),
    ],
    ids=lambda text: text[:40],
)
def test_anything_else_is_no_report(text: str):
    with pytest.raises(ValueError, match="can't read its report"):
        Report.read(text)
