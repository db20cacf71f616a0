"""Lines of npx and uvx, as they really are."""

import pytest

from ipybox.mcp_client.failures import is_progress, readable_line


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("npm http fetch GET 200 https://r.example/@scope%2fname 123ms (cache miss)", "looking up @scope%2fname"),
        ("npm http fetch GET 200 https://r.example/x/-/x-1.2.3.tgz 20ms (cache miss)", "downloading x-1.2.3.tgz"),
        ("npm http cache x@https://r.example/x/-/x-1.2.3.tgz 0ms (cache hit)", "downloading x-1.2.3.tgz"),
        ("Downloading numpy (16.0MiB)", "Downloading numpy (16.0MiB)"),
        ("Installed 30 packages in 12ms", "Installed 30 packages in 12ms"),
    ],
)
def test_downloads_are_progress_and_no_reason_of_a_failure(line: str, shown: str):
    assert is_progress(line)
    assert readable_line(line) == shown


@pytest.mark.parametrize(
    "line",
    [
        "npm http fetch GET 404 https://r.example/x 20ms (cache skip)",
        "npm http fetch GET https://r.example/x attempt 1 failed with ECONNREFUSED",
        "npm error code E404",
        "error: Failed to fetch: `https://r.example/simple/x/`",
        "Error: Downloading failed",
    ],
)
def test_other_lines_stay_as_they_are(line: str):
    assert not is_progress(line)
    assert readable_line(line) == line
