"""Secrets are found in any text and any nesting; other text stays unchanged."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.base.redaction import MARK, Redactor, is_secret, redact
from tests.support.timing import judge

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
SECRETS = st.text(alphabet=LETTERS + "-_./+=~!@#$%^&*\"'\\ äß", min_size=8, max_size=40).filter(
    lambda text: len(text.strip()) >= 8
)
# The alphabet cannot spell any word of a secret.
PLAIN = st.text(alphabet=st.sampled_from("aeiou ßñ漢\n\t.,;()[]{}<>\"'\\/+*#"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PLAIN, inner, max_size=4),
    max_leaves=12,
)


def texts_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for name, inner in value.items():  # pyright: ignore[reportUnknownVariableType]  # any plain data
                yield from texts_in(name)
                yield from texts_in(inner)
        case list():
            for inner in value:  # pyright: ignore[reportUnknownVariableType]  # any plain data
                yield from texts_in(inner)
        case _:
            pass


@given(PLAIN)
def test_a_text_without_secrets_is_unchanged(text: str) -> None:
    assert Redactor(["some-secret-value"]).text(text) == text


@given(VALUES)
def test_data_without_secrets_is_unchanged(value: Any) -> None:
    assert Redactor(["some-secret-value"]).data(value) == value


@given(st.lists(SECRETS, min_size=1, max_size=3), st.text(), st.text(), st.data())
def test_no_known_secret_survives_in_a_text(secrets: list[str], before: str, after: str, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(secrets), min_size=1, max_size=4))
    text = before + after.join(chosen) + after
    redacted = Redactor(secrets).text(text)
    assert not any(secret.strip() in redacted for secret in secrets if secret.strip() not in MARK)


@given(st.lists(SECRETS, min_size=1, max_size=3), st.data())
def test_no_known_secret_survives_in_any_nesting(secrets: list[str], data: st.DataObject) -> None:
    leaf: st.SearchStrategy[str] = st.tuples(PLAIN, st.sampled_from(secrets), PLAIN).map("".join)
    values: st.SearchStrategy[Any] = st.recursive(
        leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(leaf, inner, max_size=3)
    )
    value = data.draw(values)
    redacted = Redactor(secrets).data(value)
    assert json.loads(json.dumps(redacted)) == redacted
    for text in texts_in(redacted):
        assert not any(secret.strip() in text for secret in secrets)


@given(st.lists(SECRETS, max_size=3), st.text(), st.sampled_from(["token=", "Bearer ", "", '"api_key": "', "sk-ant-"]))
def test_redacting_twice_changes_nothing(secrets: list[str], text: str, word: str) -> None:
    redactor = Redactor(secrets)
    once = redactor.text(word + word.join([text, *secrets]))
    assert redactor.text(once) == once


@given(st.lists(SECRETS, min_size=1, max_size=2), PLAIN, PLAIN, st.lists(st.integers(0, 60), max_size=6))
def test_no_secret_survives_across_pieces(secrets: list[str], before: str, after: str, cuts: list[int]) -> None:
    text = before + secrets[0] + after
    places = sorted({min(cut, len(text)) for cut in cuts})
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    redacted = Redactor(secrets).pieces(pieces)
    assert len(redacted) == len(pieces)
    assert secrets[0].strip() not in "".join(redacted)
    assert Redactor(["not-in-there"]).pieces(pieces) == [Redactor([]).text(piece) for piece in pieces]


FOUND = {
    "sk-ant-": "sk-ant-api03-abcdefghijklmnop",
    "sk-": "sk-proj-AbCdEf0123456789AbCdEf",
    "ghp_": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "gho_": "gho_abcdefghijklmnop1234",
    "ghs_": "ghs_abcdefghijklmnop1234",
    "github_pat_": "github_pat_11ABCDEFG0abcdefghij_klmnop",
    "AKIA": "AKIAIOSFODNN7EXAMPLE",
    "xoxb": "xoxb-123456789012-abcdefghijkl",
    "AIza": "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "glpat": "glpat-abcdefghij1234567890",
}


@pytest.mark.parametrize("token", FOUND.values(), ids=FOUND)
@pytest.mark.parametrize("around", ["{}", "export X={}", '{{"a": "{}"}}', "(see {})", "+{}\n", "`{}`", "x:{},"])
def test_tokens_are_known_by_their_shape(token: str, around: str) -> None:
    redacted = Redactor().text(around.format(token))
    assert token[4:] not in redacted
    assert MARK in redacted


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("Authorization: Bearer abcdef123456", f"Authorization: Bearer {MARK}"),
        ("authorization: basic dXNlcjpwYXNz", f"authorization: basic {MARK}"),
        ("https://me:pa55word@example.org/x", f"https://me:{MARK}@example.org/x"),
        ("API_KEY=abcdefghijklmnop", f"API_KEY={MARK}"),
        ("export MY_SECRET='correct-horse'", f"export MY_SECRET='{MARK}'"),
        ('{"api_key": "abcd1234efgh", "n": 1}', f'{{"api_key": "{MARK}", "n": 1}}'),
        (r"{\"authToken\": \"abcd1234efgh\"}", rf"{{\"authToken\": \"{MARK}\"}}"),
        ("password: hunter2hunter2", f"password: {MARK}"),
        ("curl '?token=abcdefgh&x=1'", f"curl '?token={MARK}&x=1'"),
        ("my_key: A1b2C3d4E5f6G7h8", f"my_key: {MARK}"),
    ],
)
def test_a_value_assigned_to_a_secret_name_is_redacted(text: str, redacted: str) -> None:
    assert Redactor().text(text) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "bearer authentication is used here",
        "pip install sk-learn-contrib-extras",
        "task-management-0-and-more-of-it",
        "sorted(names, key=lambda name: name.lower())",
        "key = config.section.value1",
        "max_tokens=4096000000",
        "tokenizer = AutoTokenizer.from_pretrained('x')",
        "password = getpass.getpass()",
        "token: str = field(default='')",
        "secret_key = settings.SECRET_KEY",
        'api_key = os.environ["API_KEY"]',
        'api_key: "$API_KEY"',
        'password = "<your password>"',
        "https://example.org:8080/a@b",
        'key="step-1-result"',
        "-----BEGIN PRIVATE KEY----- is how it begins",
    ],
)
def test_text_that_only_resembles_a_secret_stays(text: str) -> None:
    assert Redactor().text(text) == text
    assert Redactor().text(text, code=True) == text


def test_names_that_are_passed_on_stay_in_code() -> None:
    code = "connect(token=access_token, password=password_of_user)"
    assert Redactor().text(code, code=True) == code
    assert MARK in Redactor().text("login?password=supersecret")


@pytest.mark.parametrize("sign", ["", "+", "-", " "])
def test_private_keys_are_redacted_line_by_line(sign: str) -> None:
    lines = ["-----BEGIN RSA PRIVATE KEY-----", "MIIEpAIBAAKCAQEA", "+bcd/efgh0123==", "-----END RSA PRIVATE KEY-----"]
    text = "\n".join(f"{sign}{line}" for line in lines)
    redacted = Redactor().text(text).split("\n")
    assert [line.removeprefix(sign).lstrip("+") for line in redacted] == [lines[0], MARK, MARK, lines[3]]
    assert Redactor().text("\\n".join(lines)).count(MARK) == 2


def test_the_value_under_a_name_of_a_secret_is_redacted() -> None:
    data = {"apiKey": "correct-horse", "key": "src/main.py", "tokens": 5, "token": ["a"], "password": "two words"}
    assert Redactor().data(data) == {**data, "apiKey": MARK}


def test_the_environment_is_known_and_short_values_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "wonderful-day")
    monkeypatch.setenv("OTHER_KEY", "dummy")
    monkeypatch.setenv("LONG_SECRET", "first-line-of-it\nsecond-line-of-it\nx")
    assert redact("a wonderful-day, dummy") == f"a {MARK}, dummy"
    assert redact("+second-line-of-it") == f"+{MARK}"
    more = Redactor.of_environment({"ANTHROPIC_API_KEY": "over-the-hills", "PATH": "/usr/local/bin"})
    assert more.text("over-the-hills /usr/local/bin wonderful-day") == f"{MARK} /usr/local/bin {MARK}"


def test_a_secret_is_found_as_it_is_written_in_json_and_in_an_address() -> None:
    redactor = Redactor(['pass"word\\9 ä'])
    for text in (json.dumps({"x": 'pass"word\\9 ä'}), "q=pass%22word%5C9%20%C3%A4"):
        assert MARK in redactor.text(text)
        assert "word" not in redactor.text(text)


def test_each_redactor_searches_a_text_for_its_own_secrets() -> None:
    text = "it is Xq7-very-secret"
    for _ in range(2):
        assert Redactor().text(text) == text
        assert (knows := Redactor(["Xq7-very-secret"])).text(text) == "it is [redacted]"
        assert knows.text(text) == "it is [redacted]"


def test_a_name_that_code_passes_on_is_still_searched_elsewhere() -> None:
    redactor = Redactor()
    line = "token=token_of_user"
    assert redactor.text(line, code=True) == line
    assert redactor.text(line) == "token=[redacted]"


def test_bytes_with_a_secret_are_known() -> None:
    redactor = Redactor(["hunter2-hunter2"])
    assert redactor.finds("\0\1hunter2-hunter2\0")
    assert redactor.finds("\0ghp_abcdefghijklmnopqrstuvwxyz0123456789\0")
    assert not redactor.finds("\0\1\2")


def test_names_of_secrets() -> None:
    assert all(map(is_secret, ["API_KEY", "github_token", "DbPassword", "AWS_SECRET_ACCESS", "X_CREDENTIALS"]))
    assert all(
        map(is_secret, ["DB_PASS", "MYSQL_PWD", "MY_PAT", "SENTRY_DSN", "JWT", "COOKIE", "BASIC_AUTH", "DbPass"])
    )
    assert not any(map(is_secret, ["PATH", "HOME", "LANG", "PWD", "OLDPWD", "SSH_AUTH_SOCK", "NO_BYPASS", "PATTERN"]))


def test_the_password_in_an_address_of_the_environment_is_known() -> None:
    redactor = Redactor.of_environment({"DATABASE_URL": "postgres://app:correct%2Fhorse@db/x"})
    assert redactor.text("psql -W correct/horse, correct%2Fhorse") == f"psql -W {MARK}, {MARK}"


@pytest.mark.timed
@pytest.mark.parametrize(
    "text",
    ["lorem ipsum key amet, token x=1 ", "token=token=", "[", "-----BEGIN PRIVATE KEY-----", "sk-", "Bearer ", "://a:"],
)
def test_a_long_text_is_quick(text: str) -> None:
    long = text * (2_000_000 // len(text))
    began = time.process_time()
    Redactor(["some-secret-value"]).text(long)
    judge(time.process_time() - began, 5)
