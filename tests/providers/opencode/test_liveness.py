"""Test silent event streams: Atomic reconnects and emits missed events, or ends the turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

from atomic.providers import (
    AgentEvent,
    AgentSession,
    EndReason,
    PlanChanged,
    QuestionAsked,
    SubagentEnded,
    SubagentStarted,
    TextDelta,
    ToolEnded,
    ToolStarted,
    UsageReported,
)
from atomic.testing.model_server import Call, Drip, Script
from tests.providers.opencode import lossy_opencode
from tests.providers.opencode.sandbox import PROGRAM, bash, provider, sandbox, task, write_program
from tests.providers.processes import with_home
from tests.providers.turns import LIMIT, all_of, end_of, text_of, turn

QUESTION = {"question": "Which?", "header": "H", "options": [{"label": "A", "description": "a"}]}
TODOS = [{"content": "one", "status": "completed", "priority": "high"}]
SCRIPTS: dict[str, Script] = {
    "say": "hello",
    "long": [
        [Drip("word", 40, 0.03), bash("echo ran")],
        [Call("todowrite", {"todos": TODOS})],
        [task("part")],
        [Call("question", {"questions": [QUESTION]})],
        [Drip("last", 40, 0.03)],
    ],
    "part": [[bash("echo part")], "part done"],
    "slow": Drip("word", 2000, 0.05),
}
WORDS = "".join(f"word{number} " for number in range(1, 41))
LAST = "".join(f"last{number} " for number in range(1, 41))


async def test_events_missed_during_a_gap_are_emitted_once(tmp_path: Path) -> None:
    mute = tmp_path / "mute"
    asked: list[str] = []

    async def answer_questions(questions: object) -> list[list[str]]:
        asked.append("asked")
        return [["A"]]

    async with sandbox(tmp_path, SCRIPTS) as here:
        # The end of the gap closes the stream, so that no time limit decides when it is reopened.
        here.env |= {"MUTE": str(mute), "CLOSES": "1", "REAL_OPENCODE": str(PROGRAM)}
        using = provider(write_program(tmp_path, lossy_opencode), liveness=LIMIT)
        async with here.open(using=using, ask=answer_questions) as session:
            assert end_of(await turn(session, "@@say@@")).text == "hello"  # everything is loaded
            reading = asyncio.create_task(_mute_during_text(session, mute))
            # The stream is silent up to the question, which waits for an answer.
            await here.server.wait_for(lambda call: call.script == "long" and call.turn == 3, timeout=LIMIT)
            mute.unlink()
            events = await reading
    assert text_of(events) == WORDS + LAST
    assert (end_of(events).reason, end_of(events).text) == (EndReason.DONE, LAST)
    own = [event for event in events if not getattr(event, "agent", None)]
    assert [event.name for event in all_of(ToolStarted, own)] == ["bash", "todowrite", "question"]
    assert len(all_of(ToolEnded, own)) == 3
    [started] = all_of(SubagentStarted, events)
    [ended] = all_of(SubagentEnded, events)
    assert (started.id, ended.text) == (ended.id, "part done")
    assert text_of(events, started.id) == "part done"
    assert [event.output for event in all_of(ToolEnded, events) if event.agent] == ["part\n"]
    assert len(all_of(UsageReported, events)) == 7
    assert len(all_of(PlanChanged, events)) == len(all_of(QuestionAsked, events)) == len(asked) == 1


async def _mute_during_text(session: AgentSession, mute: Path) -> list[AgentEvent]:
    events: list[AgentEvent] = []
    async with asyncio.timeout(LIMIT):
        async for event in session.send("@@long@@"):
            events.append(event)
            if len(all_of(TextDelta, events)) == 5 and not mute.exists():
                mute.touch()
    return events


async def test_a_missed_end_is_found_and_lasting_silence_is_an_error(tmp_path: Path) -> None:
    mute = tmp_path / "mute"
    async with sandbox(tmp_path, SCRIPTS) as here:
        here.env |= {"MUTE": str(mute), "REAL_OPENCODE": str(PROGRAM)}
        async with here.open(using=provider(write_program(tmp_path, lossy_opencode), liveness=2)) as session:
            await turn(session, "everything is loaded")
            mute.touch()
            reading = asyncio.create_task(turn(session, "@@say@@"))
            await here.server.wait_for(lambda call: call.script == "say" and call.state == "answered", timeout=LIMIT)
            mute.unlink()
            events = await reading
            assert text_of(events) == end_of(events).text == "hello"

            # A stream that stays silent is an error, and the session continues in a new server.
            before = set(with_home(here.home, "serve --hostname"))
            reading = asyncio.create_task(turn(session, "@@slow@@"))
            await here.server.wait_for(lambda call: call.script == "slow", timeout=LIMIT)
            mute.touch()
            ended = end_of(await reading)
            assert ended.reason is EndReason.ERROR
            assert "no event within 2 s" in (ended.error or "")
            mute.unlink()
            assert end_of(await turn(session, "@@say@@ again")).text == "hello"
            assert not before & set(with_home(here.home, "serve --hostname"))
