"""Tell slash commands, mentions of agents and plain text apart."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.commands import CommandCall, Mention, parse, parse_mentions
from atomic.commands.parse import split_words

AGENTS = {"planner", "worker", "team:lead"}

# Names that a file can have (SPEC 4.2) and that can be typed after a slash.
NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"]), min_size=1, max_size=64).filter(
    lambda name: "/" not in name and not name.startswith("*") and name == name.strip()
)


@pytest.mark.parametrize(
    ("text", "name", "args"),
    [
        ("/ralph\nBuild x", "ralph", "Build x"),
        (" /HELP ", "help", ""),
        ("/help", "help", ""),
        ("/?", "?", ""),
        ("/? model", "?", "model"),
        ("/commit  fix the\n  login ", "commit", "fix the\n  login"),
        ("/git:tag_new-1.2 v1", "git:tag_new-1.2", "v1"),
        ("/commit\tfix", "commit", "fix"),
        ('/ralph "a b" --flag', "ralph", '"a b" --flag'),
        ("/model anthropic/opus", "model", "anthropic/opus"),
        ("/\u00dcbung", "\u00fcbung", ""),
        ("/\U0001f680 go", "\U0001f680", "go"),
    ],
)
def test_a_slash_and_a_name_is_a_command(text: str, name: str, args: str) -> None:
    assert parse(text) == CommandCall(name, args)


@pytest.mark.parametrize(
    "text",
    ["", "/", " / ", "hello", "//x", "/home/me/x", "/home/", "/ help", "/\nhelp", "say /help", "/* a comment */",
     "/a\0b", "\\/x", "./x", "/home/me/x explain this"],
)  # fmt: skip
def test_everything_else_is_text(text: str) -> None:
    assert parse(text) is None


@given(NAMES, st.text())
def test_every_name_can_be_called_with_any_arguments(name: str, args: str) -> None:
    assert parse(f"/{name} {args}") == CommandCall(name.lower(), args.strip())


def test_a_huge_text_is_read_at_once() -> None:
    assert parse("/x " + "a b" * 1_000_000) == CommandCall("x", "a b" * 1_000_000)
    assert parse(" " * 1_000_000 + "x") is None


def mentions(text: str) -> list[tuple[str, str]]:
    return [(found.agent, found.task) for found in parse_mentions(text, AGENTS.__contains__)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("@planner plan it", [("planner", "plan it")]),
        ("@planner one @worker two", [("planner", "one"), ("worker", "two")]),
        (" @planner\none\n@worker two\nthree", [("planner", "one"), ("worker", "two\nthree")]),
        ("@planner one @planner two", [("planner", "one"), ("planner", "two")]),
        ("@planner @worker do it", [("planner", "do it"), ("worker", "do it")]),
        ("@planner one @worker", [("planner", "one"), ("worker", "")]),
        ("@planner: one, @worker, two", [("planner", "one,"), ("worker", "two")]),
        ("@team:lead go", [("team:lead", "go")]),
        ("@planner read @src/worker.py and @unknown", [("planner", "read @src/worker.py and @unknown")]),
        ("@planner write to me@worker and a@b.c", [("planner", "write to me@worker and a@b.c")]),
        ("@planner/x", []),
        ("@src/main.py explain @planner", []),
        ("ask @planner", []),
        ("me@worker hello", []),
        ("@", []),
        ("@ planner", []),
        ("", []),
    ],
)
def test_agents_are_named_at_the_beginning_of_words(text: str, found: list[tuple[str, str]]) -> None:
    assert mentions(text) == found


def test_a_mention_names_an_agent_and_its_task() -> None:
    assert parse_mentions("@x y", lambda name: True) == [Mention("x", "y")]


TASKS = st.from_regex(r"[a-z.]+( [a-z.]+(@[a-z]+)?)*", fullmatch=True)


@given(st.lists(st.tuples(st.sampled_from(sorted(AGENTS)), TASKS)))
def test_each_agent_gets_only_its_own_text(asked: list[tuple[str, str]]) -> None:
    assert mentions(" ".join(f"@{agent} {task}" for agent, task in asked)) == asked


# -- words ------------------------------------------------------------------------------------------------------------


@given(st.text(alphabet="ab \t\n\"'\\-="))
def test_text_is_split_as_a_shell_splits_it_if_quotes_match(text: str) -> None:
    words = split_words(text)
    assert [word.start for word in words] == sorted({word.start for word in words})
    assert all(not text[word.start].isspace() for word in words)
    try:
        wanted = shlex.split(text)
    except ValueError:
        return
    assert [word.text for word in words] == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [("don't stop", ["don't", "stop"]), ('say "so', ["say", '"so']), ("end\\", ["end\\"]), ("", [])],
)
def test_a_quote_that_nothing_closes_is_a_letter(text: str, words: list[str]) -> None:
    assert [word.text for word in split_words(text)] == words
