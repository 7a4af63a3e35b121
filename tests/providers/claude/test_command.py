"""Test the command line: a flag and its value are one argument.

A value can therefore never be parsed as a flag.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from atomic.config import ProviderSettings, Settings
from atomic.providers import McpServer, SessionOptions
from atomic.providers.claude.launch import Launch, Origin

ALWAYS = 7  # the program and the arguments of every session
DENIED = "--disallowedTools=AskUserQuestion,EnterPlanMode,ExitPlanMode"
SERVER = McpServer(name="box", command=["box"])


def words(
    folder: Path,
    *,
    origin: Origin = Origin("new"),  # noqa: B008  # it is frozen
    schema: dict[str, Any] | None = None,
    args: Sequence[str] = (),
    **options: Any,
) -> list[str]:
    settings = Settings(providers={"claude": ProviderSettings(args=list(args))})
    usual: dict[str, Any] = {"trusted": True}
    given = SessionOptions(**{**usual, **options})
    launch = Launch(Path("claude"), settings, given)
    return launch.command_line(origin, folder, model=given.model, schema=schema)


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
def test_a_session_starts_new_resumed_or_forked(tmp_path: Path, origin: Origin, expected: list[str]) -> None:
    assert words(tmp_path, origin=origin)[ALWAYS:] == [*expected, DENIED]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"tools": ["read", "bash"]}, ["--tools=Read,Bash", DENIED, "--strict-mcp-config"]),
        ({"tools": []}, ["--tools=", DENIED, "--strict-mcp-config"]),  # no tools
        ({"denied_tools": ["write"]}, [DENIED.replace("=", "=Write,")]),
        ({"trusted": False}, [DENIED, "--setting-sources=user"]),
        (
            {"disabled_mcp_servers": ["a b"]},
            [f"{DENIED},mcp__a_b", '--settings={"deniedMcpServers": [{"serverName": "a b"}]}'],
        ),
        ({"mcp_servers": [SERVER]}, [DENIED, "--mcp-config={folder}/mcp.json"]),
        ({"system_prompt": "x"}, [DENIED, "--append-system-prompt-file={folder}/system-prompt.md"]),
        ({"model": "--verbose"}, [DENIED, "--model=--verbose"]),
        ({"max_turns": 3}, [DENIED, "--max-turns=3"]),
        ({"schema": {"type": "object"}}, [DENIED, '--json-schema={"type":"object"}']),
    ],
)
def test_each_option_is_one_argument(tmp_path: Path, given: dict[str, Any], expected: list[str]) -> None:
    wanted = [word.replace("{folder}", str(tmp_path)) for word in expected]
    assert words(tmp_path, **given)[ALWAYS + 1 :] == wanted


@pytest.mark.parametrize("given", [{"model": ""}, {"model": None}, {"denied_tools": []}, {"max_turns": None}])
def test_unset_options_are_not_in_the_command_line(tmp_path: Path, given: dict[str, Any]) -> None:
    assert words(tmp_path, **given) == words(tmp_path)


def test_the_users_arguments_come_last(tmp_path: Path) -> None:
    assert words(tmp_path, model="opus", args=["--model", "haiku"])[-3:] == ["--model=opus", "--model", "haiku"]
