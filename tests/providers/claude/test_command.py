"""Test the command line: a flag and its value are one argument.

A value can therefore never be parsed as a flag.
"""

from __future__ import annotations

from typing import Any

import pytest

from atomic.providers.claude.command import Command, Origin

ALWAYS = 7  # the program and the arguments of every session


def words(origin: Origin = Origin("new"), **given: Any) -> list[str]:  # noqa: B008  # it is frozen
    return Command(program="claude", origin=origin, **given).words()


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (Origin("new"), ["--session-id=new"]),
        (Origin("old", known=True), ["--resume=old"]),
        (Origin("copy", fork_of="old"), ["--resume=old", "--fork-session", "--session-id=copy"]),
        (Origin("copy", known=True, fork_of="old"), ["--resume=copy"]),  # the copy exists already
        (Origin("--evil", known=True), ["--resume=--evil"]),
    ],
)
def test_a_session_starts_new_resumed_or_forked(origin: Origin, expected: list[str]) -> None:
    assert words(origin)[ALWAYS:] == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"tools": ["Read", "Bash"]}, "--tools=Read,Bash"),
        ({"tools": []}, "--tools="),  # no tools
        ({"denied_tools": ["Write", "mcp__box"]}, "--disallowedTools=Write,mcp__box"),
        ({"setting_sources": ["user"]}, "--setting-sources=user"),
        ({"settings": '{"a": 1}'}, '--settings={"a": 1}'),
        ({"servers": "/tmp/mcp.json"}, "--mcp-config=/tmp/mcp.json"),
        ({"only_these_servers": True}, "--strict-mcp-config"),
        ({"system_prompt": "/tmp/prompt.md"}, "--append-system-prompt-file=/tmp/prompt.md"),
        ({"model": "--verbose"}, "--model=--verbose"),
        ({"max_turns": 3}, "--max-turns=3"),
        ({"schema": {"type": "object"}}, '--json-schema={"type":"object"}'),
    ],
)
def test_each_option_is_one_argument(given: dict[str, Any], expected: str) -> None:
    assert words(**given)[ALWAYS + 1 :] == [expected]


@pytest.mark.parametrize("given", [{"model": ""}, {"model": None}, {"denied_tools": []}, {"max_turns": None}])
def test_unset_options_are_not_in_the_command_line(given: dict[str, Any]) -> None:
    assert words(**given) == words()


def test_the_users_arguments_come_last() -> None:
    assert words(model="opus", more=["--model", "haiku"])[-3:] == ["--model=opus", "--model", "haiku"]
