"""Test recordings of real agents: a replay gives the same events and the same files."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from atomic.providers import AgentEvent, EndReason, SessionOptions, TurnEnded
from atomic.providers.recording import read_recording
from atomic.providers.replay import ReplayProvider
from tests.providers import recorded
from tests.support.repositories import content, git, state

AGENTS = ["claude", "opencode", "copilot"]


async def replay(file: Path, folder: Path) -> list[list[AgentEvent]]:
    """Replay a whole recording with the current prompts."""
    provider = ReplayProvider(file, speed=math.inf)
    turns: list[list[AgentEvent]] = []
    async with provider.open(SessionOptions(cwd=folder)) as session:
        for prompt in recorded.PROMPTS:
            turns.append([event async for event in session.send(prompt)])
    assert provider.unused == []
    return turns


def assert_done(folder: Path) -> None:
    assert content(folder) == recorded.AFTER
    assert git(folder, "log", "--format=%s").splitlines() == recorded.COMMITS
    assert git(folder, "status", "--porcelain") == "?? notes.txt\n"


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_stored_recording_can_be_replayed(agent: str, tmp_path: Path) -> None:
    file = recorded.RECORDINGS / f"{agent}.jsonl"
    folder = recorded.project(tmp_path / "project")
    turns = await replay(file, folder)
    calls = read_recording(file).calls
    assert turns == [[event for _, event in call.events] for call in calls]
    assert all(isinstance(turn[-1], TurnEnded) and turn[-1].reason is EndReason.DONE for turn in turns)
    assert_done(folder)
    head = git(folder, "rev-parse", "HEAD").strip()
    assert calls[1].commits[0].startswith(f"From {head} ")  # the commit itself is the same


@pytest.mark.parametrize("agent", AGENTS)
def test_a_stored_recording_contains_nothing_of_the_machine(agent: str) -> None:
    text = (recorded.RECORDINGS / f"{agent}.jsonl").read_text()
    for word in ("/tmp", "/home", "/root", str(Path.home()), str(Path(__file__).parents[2]), "127.0.0.1"):
        assert word not in text
    assert "$PROJECT/greeting.txt" in text


@pytest.mark.parametrize(
    "agent", ["claude", *(pytest.param(agent, marks=pytest.mark.full) for agent in ("opencode", "copilot"))]
)
async def test_a_run_of_the_real_agent_can_be_recorded_and_replayed(agent: str, tmp_path: Path) -> None:
    file = tmp_path / "rec.jsonl"
    folder = recorded.project(tmp_path / "project")
    turns = await recorded.record_run(agent, file, folder, tmp_path / "home")
    assert_done(folder)
    other = recorded.project(tmp_path / "other")
    again = await replay(file, other)
    assert again == turns
    assert (content(other), state(other)) == (content(folder), state(folder))
    kept = read_recording(recorded.RECORDINGS / f"{agent}.jsonl").calls
    assert [kinds(turn) for turn in turns] == [kinds([event for _, event in call.events]) for call in kept]


def kinds(events: list[AgentEvent]) -> list[str]:
    """Return the kinds of events in order, without repetitions, which vary from run to run."""
    shown = [event for event in events if type(event).__name__ not in ("UsageReported", "ToolOutput")]
    names = [msgspec.to_builtins(event)["type"] for event in shown]
    return [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]
