"""Hints while a user types: the table of the specification, and random use of a prompt."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from atomic.commands import CommandRegistry, Hint, HintState, builtin_commands, complete, hint_state, short_hint
from tests.commands.fakes import command

IDLE = HintState.IDLE
SUGGESTIONS = HintState.SHOWING_SUGGESTIONS
HINT = HintState.SHOWING_HINT
ARGS = HintState.TYPING_ARGS

REGISTRY = CommandRegistry(
    [
        *builtin_commands(),
        command("commit", "skill", "ci", hint="[message]"),
        command("git:tag", "command", hint="NAME"),
        command("planner", "agent"),
        command("secret", "skill", hint="[x]", hidden=True),
    ]
)


def at_end(text: str, *, dismissed: bool = False) -> Hint:
    return hint_state(text, len(text), dismissed, REGISTRY)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("", IDLE),
        ("hello", IDLE),
        ("/", SUGGESTIONS),
        ("/c", SUGGESTIONS),
        ("/commit", SUGGESTIONS),
        ("/commit ", HINT),
        ("/ci ", HINT),
        ("/COMMIT ", HINT),
        ("/git:tag ", HINT),
        ("/secret ", HINT),
        ("/commit f", ARGS),
        ("/commit  ", ARGS),
        ("/commit\nf", ARGS),
        ("/commit f ", ARGS),
        ("/planner ", ARGS),  # it has no hint
        ("/clear ", ARGS),
        ("/nope", SUGGESTIONS),  # with nothing in the list: a letter less, and there may be
        ("/nope ", IDLE),
        ("/nope x", IDLE),
        ("/ ", IDLE),
        ("//x", IDLE),
        ("//", IDLE),
        ("/home/me", IDLE),
        ("say /commit ", IDLE),
        (" /commit ", HINT),
    ],
)
def test_the_state_of_a_text(text: str, state: HintState) -> None:
    assert at_end(text).state is state


def test_letters_filter_the_suggestions() -> None:
    assert [one.name for one in at_end("/c").suggestions] == ["commit", "clear", "compact"]
    assert [one.name for one in at_end("/ci").suggestions] == ["commit"]
    assert at_end("/nope").suggestions == ()
    assert len(at_end("/").suggestions) == len(REGISTRY.all()) - 1


def test_the_hint_comes_from_the_command() -> None:
    assert at_end("/commit ") == Hint(HINT, "[message]")
    assert at_end("/m ") == Hint(HINT, "select | refresh | list [provider] | <model>")
    assert at_end("/commit f") == Hint(ARGS)


@pytest.mark.parametrize("text", ["/", "/c", "/commit", "/commit ", "/commit fix"])
def test_nothing_is_shown_after_escape_or_away_from_the_end(text: str) -> None:
    assert at_end(text, dismissed=True) == Hint()
    for cursor in range(len(text)):
        assert hint_state(text, cursor, False, REGISTRY) == Hint()


@pytest.mark.parametrize(
    ("text", "completed", "state"),
    [
        ("/com", "/commit ", HINT),
        ("/ci", "/commit ", HINT),
        ("/pla", "/planner ", ARGS),
        ("  /com", "  /commit ", HINT),
    ],
)
def test_tab_completes_to_the_name_and_a_blank(text: str, completed: str, state: HintState) -> None:
    suggestion = at_end(text).suggestions[0]
    assert complete(text, suggestion) == completed
    assert at_end(completed).state is state


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("", ""),
        ("[message]", "[message]"),
        ("a" * 23, "a" * 23),
        ("a" * 24, "a" * 20 + "..."),
        ("[enable | disable <server>]", "[enable | disable <s..."),
        ("\u6587" * 11 + "a", "\u6587" * 11 + "a"),
        ("\u6587" * 12, "\u6587" * 10 + "..."),
        ("a" + "\u6587" * 12, "a" + "\u6587" * 9 + "..."),
        ("e\u0301" * 23, "e\u0301" * 23),
    ],
)
def test_a_long_hint_is_cut_by_columns(text: str, short: str) -> None:
    assert short_hint(text) == short


def columns(text: str) -> int:
    """Count columns as a terminal does, for the letters of this test."""
    base = [letter for letter in text if not unicodedata.combining(letter)]
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in base)


@given(st.text("ab \u6587\U0001f680\u00e4\u0301"))
def test_a_short_hint_never_takes_more_than_23_columns(text: str) -> None:
    short = short_hint(text)
    assert columns(short) <= 23
    assert short == text if columns(text) <= 23 else short.endswith("...") and text.startswith(short[:-3])


class Prompt(RuleBasedStateMachine):
    """A user types, deletes, moves, completes, escapes and pastes.

    The oracle walks through the table of the specification letter by letter, from an empty prompt to the text.
    """

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.cursor = 0
        self.dismissed = False

    def edit(self, change: Callable[[str, str], tuple[str, str]]) -> None:
        before, after = change(self.text[: self.cursor], self.text[self.cursor :])
        self.text = before + after
        self.cursor = len(before)
        self.dismissed = False

    @rule(letter=st.sampled_from("   \n\n/abcdeghilmnoptX:-@"))
    def type(self, letter: str) -> None:
        self.edit(lambda before, after: (before + letter, after))

    @rule(
        word=st.sampled_from(
            ["/commit", "commit ", "planner ", "/ci ", "/nope ", "/home/me", "//x", " ", "a b\nc", "\u6587"]
        )
    )
    def paste(self, word: str) -> None:
        self.edit(lambda before, after: (before + word, after))

    @rule(count=st.integers(1, 8))
    def backspace(self, count: int) -> None:
        self.edit(lambda before, after: (before[:-count], after))

    @rule(
        word=st.sampled_from(["/", " /", "/commit", "/ci\n", "\n/planner", "/clear", "/git:tag", "/nope", "/home", "x"])
    )
    def begin_again(self, word: str) -> None:
        self.edit(lambda before, after: (word, ""))

    @rule(by=st.sampled_from([-1000, -2, -1, 1, 1000, 1000, 1000]))
    def move(self, by: int) -> None:
        self.cursor = min(max(self.cursor + by, 0), len(self.text))

    @rule(chosen=st.integers(0, 20))
    def tab(self, chosen: int) -> None:
        suggestions = self.shown().suggestions
        if suggestions:
            completed = complete(self.text, suggestions[chosen % len(suggestions)])
            self.edit(lambda before, after: (completed, ""))
            assert self.shown().state in (HINT, ARGS)

    @rule()
    def escape(self) -> None:
        self.dismissed = True

    @rule()
    def enter(self) -> None:
        self.edit(lambda before, after: ("", ""))
        assert self.shown().state is IDLE

    def shown(self) -> Hint:
        return hint_state(self.text, self.cursor, self.dismissed, REGISTRY)

    @invariant()
    def the_state_is_that_of_the_table(self) -> None:
        hidden = self.dismissed or self.cursor < len(self.text)
        state = IDLE if hidden else walked(self.text)
        shown = self.shown()
        assert shown.state is state
        assert bool(shown.hint) is (state is HINT)
        assert not shown.suggestions or state is SUGGESTIONS


KNOWN = {word.lower(): one for one in REGISTRY.all() for word in (one.name, *one.aliases)}


def walked(text: str) -> HintState:
    """Return the state after typing these letters in order, by the rows of the table."""
    state = IDLE
    name = ""
    is_lost = False  # the typed text can no longer become a command
    for letter in text:
        if is_lost:
            continue
        if state is IDLE:  # nothing but blanks so far
            state = SUGGESTIONS if letter == "/" else IDLE
            is_lost = letter != "/" and not letter.isspace()
        elif state is SUGGESTIONS and letter == "/":
            state = IDLE
            is_lost = True
        elif state is SUGGESTIONS and not letter.isspace():
            name += letter.lower()
        elif state is SUGGESTIONS:
            found = KNOWN.get(name)
            has_hint = found is not None and found.argument_hint != "" and letter == " "
            state, is_lost = (IDLE, True) if found is None else (HINT if has_hint else ARGS, False)
        else:
            state = ARGS
    return state


TestPrompt = Prompt.TestCase
