"""Test the first request to the program and its time limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomic.config import Settings
from atomic.providers import AgentSpec, SessionOptions
from atomic.providers.claude.launch import Launch

VARIABLE = "CLAUDE_CODE_STREAM_CLOSE_TIMEOUT"  # milliseconds


def launch(options: SessionOptions) -> Launch:
    return Launch(Path("claude"), Settings(), options)


def test_the_first_request_has_the_agents_and_on_resume_replaces_the_system_prompt() -> None:
    plain = {"subtype": "initialize", "forwardSubagentText": True}
    assert launch(SessionOptions()).greeting() == plain
    assert launch(SessionOptions(resume="old")).greeting() == {**plain, "systemPromptSnapshot": False}
    reader = AgentSpec(name="reader", description="Reads.", prompt="You read.", tools=["read"])
    greeting = launch(SessionOptions(agents=[reader])).greeting()
    assert greeting["agents"] == {"reader": {"description": "Reads.", "prompt": "You read.", "tools": ["Read"]}}


@pytest.mark.parametrize(
    ("value", "seconds"), [("", 30.0), ("soon", 30.0), ("1000", 30.0), ("180000", 180.0), ("-1", 30.0)]
)
def test_a_longer_start_limit_of_the_user_is_respected(
    value: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ATOMIC_START_SECONDS")
    assert launch(SessionOptions(env={VARIABLE: value})).patience == seconds
