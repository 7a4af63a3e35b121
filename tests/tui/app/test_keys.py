"""The default keys, and how users remap them."""

from __future__ import annotations

import pytest

from atomic.tui.key_bindings import TABLE, Where, keymap, normal, shown

TYPING = (Where.EMPTY, Where.PROMPT, Where.ANYWHERE)


def test_no_two_default_keys_clash() -> None:
    keys, warnings = keymap()

    assert warnings == ()
    assert keys.action("enter", *TYPING) == "send"
    assert keys.action("question_mark", *TYPING) == "keys"
    assert keys.action("question_mark", Where.PROMPT, Where.ANYWHERE) is None
    assert keys.action("up", Where.POPUP, *TYPING) == "popup_previous"


def test_names_of_actions_are_unique() -> None:
    assert len({action.name for action in TABLE}) == len(TABLE)


def test_a_key_can_be_given_to_another_action() -> None:
    keys, warnings = keymap({"tasks": ["f9", "Alt-T"]})

    assert warnings == ()
    assert keys.action("f9", *TYPING) == keys.action("alt+t", *TYPING) == "tasks"
    assert keys.action("ctrl+t", *TYPING) is None
    assert keys.shown("tasks") == "F9"


@pytest.mark.parametrize(
    ("remapped", "said"),
    [
        ({"taks": ["f9"]}, 'keys.taks: there is no such action (did you mean "tasks"?)'),
        ({"tasks": ["ctrl+nix"]}, 'keys.tasks: "ctrl+nix" is no key (write it like ctrl+t, alt+enter or f3)'),
        ({"tasks": ["t"]}, 'keys.tasks: "t" could not be typed any more (take it with ctrl or alt)'),
        ({"tasks": ["ctrl+p"]}, "keys.tasks: Ctrl+P is the key of palette too; tasks has it"),
    ],
)
def test_each_mistake_is_reported_once(remapped: dict[str, list[str]], said: str) -> None:
    keys, warnings = keymap(remapped)

    assert warnings == (said,)
    assert keys.action("ctrl+t", *TYPING) == ("tasks" if "Ctrl+P" not in said else None)


def test_the_first_of_two_actions_keeps_the_key_they_share() -> None:
    keys, warnings = keymap({"tasks": ["f9"], "agents": ["f9"]})

    assert keys.action("f9", *TYPING) == "tasks"
    assert len(warnings) == 1


def test_an_action_can_have_no_key() -> None:
    keys, warnings = keymap({"suspend": []})

    assert warnings == ()
    assert keys.action("ctrl+z", *TYPING) is None


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("Ctrl+T", "ctrl+t"),
        ("ctrl-shift-z", "ctrl+shift+z"),
        ("Shift+Ctrl+Z", "ctrl+shift+z"),
        ("Esc", "escape"),
        ("PgUp", "pageup"),
        ("?", "question_mark"),
        ("ctrl+_", "ctrl+underscore"),
        ("G", "G"),
        ("F12", "f12"),
        ("ctrl+", None),
        ("", None),
        ("hyperspace", None),
        ("foo+a", None),
    ],
)
def test_keys_are_read_in_every_common_spelling(written: str, key: str | None) -> None:
    assert normal(written) == key


def test_every_default_key_can_be_written_as_it_is_shown() -> None:
    arrows = {"↑": "up", "↓": "down"}
    for action in TABLE:
        for key in action.keys:
            assert normal(arrows.get(shown(key), shown(key))) == key
