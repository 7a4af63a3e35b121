"""Test placeholders: arguments replace them once and are not expanded again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.entities import Entity, Source
from tests.entities.files import load


def expand(prompt: str, arguments: str, provider: str = "atomic") -> str:
    return Entity("command", "x", prompt=prompt, source=Source(provider, "project", "x.md")).expand(arguments)  # pyright: ignore[reportArgumentType]  # strings instead of enums


@pytest.mark.parametrize(
    ("prompt", "arguments", "text"),
    [
        ("Fix $ARGUMENTS.", "the bug", "Fix the bug."),
        ("Fix $ARGUMENTS and $ARGUMENTS.", "it", "Fix it and it."),
        ("Fix $ARGUMENTS.", "", "Fix [no arguments provided]."),
        ("Fix $ARGUMENTS.", "  ", "Fix [no arguments provided]."),
        ("<$1> <$2> <$9>", "a 'b c'", "<a> <b c> <>"),
        ("<$1> <$2>", "it's \"two", "<it's> <\"two>"),
        ("$10 $1", "a", "$10 a"),
        ("$0 $1", "a", "$0 a"),
        ("$ARGUMENTS[0] $ARGUMENTS[1] $ARGUMENTS[2].", "a b", "a b ."),
        ("$ARGUMENTS[99999999999999999999].", "a", "."),
        ("$ARGUMENTS[x]", "a", "a[x]"),
        ("$ARGUMENTS_DIR $ARGUMENTS", "a", "$ARGUMENTS_DIR a"),
        ("Commit.", "all of it", "Commit.\n\nARGUMENTS: all of it"),
        ("Commit.\n", "", "Commit.\n"),
        ("It costs $0.", "x", "It costs $0.\n\nARGUMENTS: x"),
        ("", "x", "ARGUMENTS: x"),
        ("See @src/a.py and !`git status` $1", "x", "See @src/a.py and !`git status` x"),
        # Arguments are not expanded again.
        ("Do $ARGUMENTS", "$1 $ARGUMENTS", "Do $1 $ARGUMENTS"),
        ("<$1> <$2>", "$2 b", "<$2> <b>"),
        ("Do it", "$ARGUMENTS \\1 \\g<0>", "Do it\n\nARGUMENTS: $ARGUMENTS \\1 \\g<0>"),
        ("<$1>", "'\\\\1'", "<\\\\1>"),
    ],
)
def test_placeholders_are_replaced_by_arguments(prompt: str, arguments: str, text: str) -> None:
    assert expand(prompt, arguments) == text


@pytest.mark.parametrize("provider", ["atomic", "opencode", "copilot"])
def test_other_agents_count_arguments_from_one(provider: str) -> None:
    assert expand("<$0,$1,$2> $ARGUMENTS[0]", "a b c d", provider) == "<$0,a,b> a"


def test_claude_counts_arguments_from_zero() -> None:
    assert expand("<$1,$2>", "a b c d", "claude") == "<b,c>"
    assert expand("<$0> <$3> <$4> $ARGUMENTS[0]", "a b c d", "claude") == "<a> <d> <> a"
    assert expand("$0 $10", "", "claude") == " $10"


@given(st.text(st.sampled_from("$ARGUMENTS10[]'\" \\ab")), st.sampled_from(["$ARGUMENTS", "<$1>", "text"]))
def test_arguments_are_inserted_unchanged(typed: str, prompt: str) -> None:
    text = expand(f"{prompt} $ARGUMENTS", typed)
    assert text.endswith(typed if typed.strip() else "[no arguments provided]")


def test_the_prompt_of_a_skill_with_more_files_names_its_folder(tmp_path: Path) -> None:
    head = "---\ndescription: x\n---\nDo $1.\n"
    registry = load(
        tmp_path,
        {
            ".claude/skills/big/SKILL.md": head,
            ".claude/skills/big/run.py": "",
            ".atomic/skills/small/SKILL.md": head,
            ".atomic/skills/small/.DS_Store": "",
        },
    )
    folder = tmp_path / "project/.claude/skills/big"
    assert registry.require("skill", "big").expand("a b") == f"Base directory for this skill: {folder}\n\nDo b."
    assert registry.require("skill", "big").prompt == "Do $1."
    assert registry.require("skill", "small").expand("a b") == "Do a."
