"""The suggestions for the prompt, as a function of text, cursor and dismissal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.chat.protocol import CommandInfo
from atomic.tui.suggestions import KnownNames, Offer, OfferKind, mention_at, needs_argument, offer, registry_of

COMMANDS = (
    CommandInfo("help", "Show help", "builtin", ("h", "?"), "[command]"),
    CommandInfo("model", "Choose a model", "builtin", ("m",), "select | refresh | list [provider] | <model>"),
    CommandInfo("clear", "A new conversation", "builtin"),
    CommandInfo("ralph", "Work on a list of tasks", "workflow", ("loop",), '"<prompt-or-spec-path>"'),
    CommandInfo("secret", "Hidden", "skill", hidden=True),
)
AGENTS = (CommandInfo("planner", "Plans", "agent"), CommandInfo("reviewer", "Reviews", "agent"))
KNOWN = KnownNames(registry_of(COMMANDS), AGENTS, ("s", ("src/app.py", "src/a b.py")))


def offered(text: str, *, dismissed: bool = False, cursor: int | None = None) -> Offer:
    return offer(text, len(text) if cursor is None else cursor, dismissed, KNOWN)


def labels(text: str) -> list[str]:
    return [row.label for row in offered(text).rows]


def test_a_slash_lists_the_commands_and_letters_filter() -> None:
    assert labels("/") == ["/ralph", "/clear", "/help", "/model"]
    assert labels("/m") == ["/model"]
    assert labels("/loop") == ["/ralph"]
    assert offered("/nope").note == "No command begins like this"


@pytest.mark.parametrize(
    ("text", "ghost"),
    [("/help ", "[command]"), ("/help x", ""), ("/help", ""), ("/nope ", ""), ("/clear ", ""), ("x /help ", "")],
)
def test_the_grey_hint_follows_a_command_without_arguments(text: str, ghost: str) -> None:
    assert offered(text).ghost == ghost


def test_no_row_is_offered_after_a_dismissal_or_inside_the_text() -> None:
    assert offered("/he", dismissed=True) == Offer()
    assert offered("/he", cursor=1) == Offer()


def test_enter_runs_commands_without_arguments_and_completes_others() -> None:
    assert [(row.label, row.runs) for row in offered("/").rows] == [
        ("/ralph", False),
        ("/clear", True),
        ("/help", True),
        ("/model", True),
    ]
    assert needs_argument("<question or topic>")
    assert not needs_argument("[<file>]")


def test_an_at_sign_offers_agents_and_files() -> None:
    rows = offered("look at @s").rows

    assert [row.label for row in rows] == ["@src/app.py", "@src/a b.py"]
    assert [row.insert for row in rows] == ["@src/app.py ", '@"src/a b.py" ']
    assert {row.start for row in rows} == {8}
    assert labels("@plan") == ["@planner"]
    assert offered("me@example").kind is OfferKind.NOTHING


def test_previous_rows_stay_until_new_files_arrive() -> None:
    assert labels("@src/app") == ["@src/app.py"]
    assert offered("@srcx") == Offer()  # not answered yet


def test_the_list_shows_that_commands_are_still_loading() -> None:
    assert offer("/", 1, False, KnownNames()).note == "The commands are still being read …"
    assert offer("/home/me", 8, False, KnownNames()) == Offer()


@given(st.text("/@ab\n ", max_size=12), st.integers(0, 12), st.booleans())
def test_any_text_with_any_cursor_is_handled(text: str, cursor: int, dismissed: bool) -> None:
    cursor = min(cursor, len(text))
    found = offer(text, cursor, dismissed, KNOWN)

    assert found == offer(text, cursor, dismissed, KNOWN)
    for row in found.rows:
        assert 0 <= row.start <= cursor
    if mention_at(text, cursor) is None and not text.lstrip().startswith("/"):
        assert found == Offer()
