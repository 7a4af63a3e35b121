"""Test turns of the real program and their events."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from atomic.providers import (
    Compacted,
    EndReason,
    Notice,
    PlanChanged,
    PlanItem,
    ProviderError,
    SkillLoaded,
    ThinkingDelta,
    ToolEnded,
    ToolStarted,
    Usage,
    UsageReported,
)
from atomic.testing.model_server import Big, Call, Fail, HalfCharacter, Pause, Say, Stop, Think, Tokens
from tests.providers.claude.sandbox import bash, sandbox
from tests.providers.processes import find
from tests.providers.turns import LIMIT, all_of, end, end_of, text_of, turn

pytestmark = pytest.mark.ci


async def test_a_turn_reports_text_thinking_and_tools_with_their_results(tmp_path: Path) -> None:
    file = tmp_path / "written.txt"
    scripts = {
        "say": [[Think("hm, hm"), "Hello ", Pause(0.1), "there, ", Pause(0.1), HalfCharacter("€"), " done"]],
        "work": [
            [Say("I write."), Call("Write", {"file_path": str(file), "content": "alpha\n"})],
            [Call("Edit", {"file_path": str(file), "old_string": "alpha", "new_string": "ωmega"})],
            [bash("echo out; exit 3")],
            "It printed {{tool_result}}",
        ],
    }
    async with sandbox(tmp_path, scripts) as here, here.open() as session:
        events = await turn(session, "@@say@@ go")
        assert "".join(event.text for event in all_of(ThinkingDelta, events)) == "hm, hm"
        assert text_of(events) == end_of(events).text == "Hello there, € done"
        assert end_of(events).reason is EndReason.DONE

        events = await turn(session, "@@work@@ go")
        started = all_of(ToolStarted, events)
        ended = all_of(ToolEnded, events)
        assert [tool.name for tool in started] == ["Write", "Edit", "Bash"]
        assert started[0].input == {"file_path": str(file), "content": "alpha\n"}
        assert [tool.id for tool in started] == [tool.id for tool in ended]
        assert [tool.error for tool in ended] == [None, None, "Exit code 3\nout"]
        assert file.read_text() == "ωmega\n"
        assert end_of(events).text == "It printed Exit code 3\nout"  # only the last message
        assert here.server.other == []


async def test_usage_is_reported_per_call_and_per_turn_with_cost(tmp_path: Path) -> None:
    tokens = Tokens(input=1000, output=500, cached=2000, written=100)
    scripts = {"twice": [[tokens, bash("true")], [tokens, "done"]], "once": [[tokens, "done"]]}
    async with sandbox(tmp_path, scripts) as here, here.open() as session:
        events = await turn(session, "@@twice@@ go")
        assert [event.usage for event in all_of(UsageReported, events)] == [Usage(3100, 500, 2000)] * 2
        first = end_of(events).usage
        second = (await end(session, "@@once@@ go")).usage
        assert (first.input, first.output, first.cached) == (6200, 1000, 4000)
        assert (second.input, second.output, second.cached) == (3100, 500, 2000)  # of this turn only
        assert first.cost is not None
        assert second.cost is not None
        assert abs(first.cost - 2 * second.cost) < 1e-9
        assert second.cost > 0


async def test_skills_plans_and_the_limit_of_turns_are_reported(tmp_path: Path) -> None:
    scripts = {
        "skill": [Call("Skill", {"skill": "tidy"}), "tidied"],
        "plan": [
            Call("TaskCreate", {"subject": "one", "description": "do one"}),
            Call("TaskCreate", {"subject": "two", "description": "do two"}),
            Call("TaskUpdate", {"taskId": "1", "status": "completed"}),
            "planned",
        ],
        "more": [[bash(f"echo {number}")] for number in range(9)],
        "say": "still there",
    }
    async with sandbox(tmp_path, scripts) as here:
        skill = here.home / ".claude/skills/tidy/SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text("---\nname: tidy\ndescription: tidies up\n---\nTidy up.\n")
        async with here.open(max_turns=5, model="claude-sonnet-4-5") as session:  # newer models do not write a list
            assert [one.name for one in all_of(SkillLoaded, await turn(session, "@@skill@@ go"))] == ["tidy"]
            plans = [event.items for event in all_of(PlanChanged, await turn(session, "@@plan@@ go"))]
            assert plans[0] == (PlanItem("one", "pending"),)
            assert plans[-1] == (PlanItem("one", "completed"), PlanItem("two", "pending"))
            ended = await end(session, "@@more@@ go")
            assert ended.reason is EndReason.MAX_TURNS
            assert ended.error == "Reached maximum number of turns (5)"
            assert (await end(session, "@@say@@ go")).text == "still there"


async def test_the_older_to_do_list_is_a_plan(tmp_path: Path) -> None:
    todos = [{"content": "one", "status": "in_progress", "activeForm": "doing one"}]
    scripts = {"plan": [Call("TodoWrite", {"todos": todos}), "planned"]}
    older: dict[str, Any] = {"model": "claude-sonnet-4-5", "env": {"CLAUDE_CODE_ENABLE_TASKS": "0"}}
    async with sandbox(tmp_path, scripts) as here, here.open(**older) as session:
        plans = all_of(PlanChanged, await turn(session, "@@plan@@ go"))
        assert [plan.items for plan in plans] == [(PlanItem("one", "in_progress"),)]


async def test_a_refusal_ends_the_turn_as_refused(tmp_path: Path) -> None:
    scripts = {"no": [["I", Stop("refusal")], ["can", Stop("refusal")]], "say": "fine"}
    async with sandbox(tmp_path, scripts) as here, here.open() as session:
        events = await turn(session, "@@no@@ go")
        assert end_of(events).reason is EndReason.REFUSED
        assert any("safeguards" in notice.text for notice in all_of(Notice, events))
        assert (await end(session, "@@say@@ go")).reason is EndReason.DONE


async def test_the_context_can_be_measured_and_compacted(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {"say": "hello"}) as here, here.open() as session:
        async with asyncio.timeout(LIMIT):
            await session.compact()  # nothing to do
        await end(session, "@@say@@ 1")
        usage = await session.context()
        assert 0 < usage.used < usage.limit
        events = await turn(session, "/compact")
        assert len(all_of(Compacted, events)) == 1
        assert end_of(events).reason is EndReason.DONE
        assert (await end(session, "@@say@@ 2")).text == "hello"
        async with asyncio.timeout(LIMIT):
            await session.compact("remember the greeting")
        assert "remember the greeting" in str([call.body["messages"] for call in here.server.calls])


async def test_a_failed_compaction_raises_the_reason(tmp_path: Path) -> None:
    scripts = {"say": ["hello", Fail(400, message="not today")]}
    async with sandbox(tmp_path, scripts) as here, here.open() as session:
        await end(session, "@@say@@ 1")
        async with asyncio.timeout(LIMIT):
            with pytest.raises(ProviderError, match="not today"):
                await session.compact()


async def test_a_changed_model_survives_a_restart_of_the_program(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {"say": "I am {{model}}"}) as here, here.open(model="first-model") as session:
        await session.set_model("second-model")
        assert (await end(session, "@@say@@ 1")).text == "I am second-model"
        await session.set_model("third-model")
        assert (await end(session, "@@say@@ 2")).text == "I am third-model"
        [program] = find(session.id)
        os.kill(program, signal.SIGKILL)
        assert (await end(session, "@@say@@ 3")).text == "I am third-model"


async def test_long_prompts_and_long_answers_are_complete(tmp_path: Path) -> None:
    scripts = {"big": [[Big(8_000_000), " the end"]], "say": "hello"}
    async with sandbox(tmp_path, scripts) as here, here.open() as session:
        events = await turn(session, "@@big@@ go")
        assert len(text_of(events)) == len(end_of(events).text) == 8_000_000 + len(" the end")
        prompt = "жук " * 200_000 + "@@say@@"
        assert (await end(session, prompt)).text == "hello"
        assert here.server.calls[-1].user_text == prompt
