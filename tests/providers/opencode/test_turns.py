"""Test turns of the real program that are special to OpenCode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from atomic.providers import (
    AgentEvent,
    AgentSpec,
    EndReason,
    LimitReached,
    PlanChanged,
    ProviderError,
    Question,
    SkillLoaded,
    SubagentEnded,
    SubagentStarted,
    TextDelta,
    ToolEnded,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    UsageReported,
)
from atomic.testing.model_server import Call, CallState, Drip, Fail, Script
from tests.providers.opencode.sandbox import Sandbox, bash, sandbox, task
from tests.providers.processes import appears, disappears
from tests.providers.turns import all_of, end, end_of, text_of, turn
from tests.support.timing import judge
from tests.support.waits import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

# The user's configuration: permissions to ask for, which Atomic allows, and denials.
USER = {
    "subagent_depth": 2,
    "permission": {"bash": {"*": "ask", "rm *": "deny"}, "edit": "ask", "webfetch": "deny", "websearch": "deny"},
    "agent": {"lead": {"description": "leads", "mode": "all", "permission": {"task": "allow"}}},
}
QUESTION = {"question": "Which?", "header": "H", "options": [{"label": "A", "description": "a"}]}
TODOS = [{"content": "one", "status": "in_progress", "priority": "high"}]
SCRIPTS: dict[str, Script] = {
    "say": "hello",
    "rules": [
        [bash("echo ran > ran.txt"), Call("write", {"filePath": "{outside}", "content": "x"})],
        [Call("read", {"filePath": "{env}"})],
        [bash("rm ran.txt")],
        "tried",
    ],
    "outer": [[task("middle", agent="lead")], "outer got {{tool_result}}"],
    "middle": [[task("inner")], "middle got {{tool_result}}"],
    "inner": [[bash("rm ran.txt; echo no")], [bash("echo in")], "inner did {{tool_result}}"],
    "plan": [[Call("todowrite", {"todos": TODOS})], "planned"],
    "skill": [[Call("skill", {"name": "juggling"})], "can juggle"],
    "output": [[bash("echo one; sleep 1; echo two")], "done"],
    "limit": [[Fail(429, message="too many requests", times=1), "back again"]],
    "ask": [[Call("question", {"questions": [QUESTION]})], "never"],
    "slow": Drip("word", 2000, 0.05),
    "tool": [[bash("exec -a sleeper-of-turns sleep 300")], "slept"],
    "stubborn": [[bash("trap '' TERM; exec -a stubborn-sleeper sleep 300")], "slept"],
    "delegate": [[task("part")], "delegated"],
    "part": "part done",
    "write": [[task("written", agent="writer")], "delegated"],
    "written": "written",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Sandbox]:
    folder = tmp_path_factory.mktemp("opencode")
    skill = folder / "home" / ".config" / "opencode" / "skill" / "juggling"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: juggling\ndescription: How to juggle\n---\nThrow, then catch.\n")
    (folder / ".env").write_text("SECRET=1\n")
    # OpenCode would download ripgrep to search a skill's folder.
    ripgrep = folder / "rg"
    ripgrep.write_text("#!/bin/sh\nexit 1\n")
    ripgrep.chmod(0o755)
    scripts = {name: _fill_paths(script, folder) for name, script in SCRIPTS.items()}
    async with sandbox(folder, scripts, USER) as here:
        here.env["PATH"] = f"{folder}:{here.env['PATH']}"
        async with here.open():  # keep the server: starting it is slow
            yield here


def _fill_paths(script: Script, folder: Path) -> Script:
    """Put paths into the calls of a script."""
    if isinstance(script, Call) and isinstance(script.tool, str):
        path = str(script.input.get("filePath", ""))
        path = path.replace("{outside}", str(folder / "outside.txt")).replace("{env}", str(folder / ".env"))
        return Call(script.tool, {**script.input, **({"filePath": path} if path else {})})
    if isinstance(script, list):
        return [_fill_paths(part, folder) for part in script]  # pyright: ignore[reportReturnType]  # a turn is one too
    return script


async def test_ask_rules_allow_and_deny_rules_deny(here: Sandbox) -> None:
    async with here.open() as session:
        events = await turn(session, "@@rules@@")
    ended = all_of(ToolEnded, events)
    assert [bool(event.error) for event in ended] == [False, False, False, True]
    assert (here.work / "ran.txt").read_text() == "ran\n"
    assert (here.work.parent / "outside.txt").read_text() == "x"
    assert "SECRET=1" in ended[2].output
    assert not {"webfetch", "websearch"} & set(here.server.calls[-1].tools)


async def test_sub_agents_of_sub_agents_keep_the_users_rules(here: Sandbox) -> None:
    (here.work / "ran.txt").write_text("ran\n")
    async with here.open() as session:
        events = await turn(session, "@@outer@@")
    outer, inner = all_of(SubagentStarted, events)
    assert (outer.name, outer.agent, inner.name, inner.agent) == ("lead", None, "general", outer.id)
    assert [event.id for event in all_of(SubagentEnded, events)] == [inner.id, outer.id]
    assert {event.agent for event in all_of(ToolStarted, events)} == {inner.id}
    assert [bool(event.error) for event in all_of(ToolEnded, events)] == [True, False]
    assert text_of(events, inner.id).startswith("inner did in")
    assert (here.work / "ran.txt").exists()
    assert {event.agent for event in all_of(UsageReported, events)} == {None, outer.id, inner.id}
    assert end_of(events).usage.output == 20 * 7
    assert end_of(events).text.startswith("outer got")


async def test_plans_skills_and_the_output_of_tools_are_reported(here: Sandbox) -> None:
    async with here.open() as session:
        [plan] = all_of(PlanChanged, await turn(session, "@@plan@@"))
        assert [(item.text, item.status) for item in plan.items] == [("one", "in_progress")]
        events = await turn(session, "@@skill@@")
        assert all_of(SkillLoaded, events) == [SkillLoaded("juggling")]
        assert "Throw, then catch." in all_of(ToolEnded, events)[0].output
        events = await turn(session, "@@output@@")
        assert [event.text for event in all_of(ToolOutput, events)] == ["one\n", "two\n"]


async def test_a_short_limit_is_reported_and_awaited(here: Sandbox) -> None:
    async with here.open() as session:
        events = await turn(session, "@@limit@@")
    assert [limit.message for limit in all_of(LimitReached, events)] == ["too many requests"]
    assert (end_of(events).reason, end_of(events).text) == (EndReason.DONE, "back again")


async def test_an_unanswerable_question_ends_the_turn_but_not_the_session(here: Sandbox) -> None:
    async def fail(questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        raise LookupError("the user is away")

    async with here.open(ask=fail) as session:
        ended = await end(session, "@@ask@@")
        assert ended.reason is EndReason.ERROR
        assert "the user is away" in (ended.error or "")
        assert (await end(session, "@@say@@")).text == "hello"


async def test_an_unknown_model_is_an_error_at_once(here: Sandbox) -> None:
    with pytest.raises(ProviderError, match='did you mean "scripted/scripted-2"'):
        async with here.open(model="scripted/scripted2"):
            pass
    async with here.open() as session:
        with pytest.raises(ProviderError, match="no model"):
            await session.set_model("scripted/unknown")
        assert (await end(session, "@@say@@")).text == "hello"


async def test_denied_tools_apply_to_sub_agents_but_not_to_the_resumed_session(here: Sandbox) -> None:
    async with here.open(denied_tools=["bash", "grep"]) as session:
        await end(session, "@@delegate@@")
    offered = [set(call.tools) for call in here.server.calls if call.script in ("delegate", "part")]
    assert len(offered) == 3
    assert not any({"bash", "grep"} & tools for tools in offered)
    async with here.open(resume=session.id) as again:
        await end(again, "@@say@@")
    assert {"bash", "grep"} <= set(here.server.calls[-1].tools)


async def test_a_compaction_uses_the_requested_focus(here: Sandbox) -> None:
    async with here.open() as session:
        await session.compact()  # the conversation is empty
        await end(session, "@@say@@ " + "a long text " * 50)
        before = await session.context()
        await session.compact("the colour of the horse")
        assert "the colour of the horse" in str(here.server.calls[-1].body)
        after = await session.context()
        assert 0 < after.used < before.used < before.limit
        assert (await end(session, "@@say@@ again")).text == "hello"


async def test_an_interrupt_works_at_any_moment_and_the_next_turn_works(here: Sandbox) -> None:
    async with here.open() as session:
        for delay in (0, 0.001, 0.01, 0.03, 0.06, 0.1, 0.2):
            reading = asyncio.create_task(turn(session, "@@slow@@"))
            await asyncio.sleep(delay)
            await session.interrupt()
            assert end_of(await reading).reason is EndReason.INTERRUPTED
            if delay in (0.01, 0.2):
                assert (await end(session, "@@say@@")).text == "hello"
    slow = [call for call in here.server.calls if call.script == "slow"]
    await eventually(lambda: all(call.state is not CallState.OPEN for call in slow))


async def test_an_interrupt_does_not_affect_other_sessions(here: Sandbox) -> None:
    async with here.open() as one, here.open() as other:
        events: list[AgentEvent] = []
        reading = asyncio.create_task(turn(one, "@@tool@@"))
        await appears("sleeper-of-turns")
        async for event in other.send("@@slow@@"):
            events.append(event)
            if len(all_of(TextDelta, events)) == 3:
                await one.interrupt()
            if len(all_of(TextDelta, events)) == 20:
                await other.interrupt()
        assert end_of(await reading).reason is EndReason.INTERRUPTED
        assert len(all_of(TextDelta, events)) >= 20
        await disappears("sleeper-of-turns")


@pytest.mark.timed
async def test_an_interrupt_kills_a_tool_that_ignores_sigterm(here: Sandbox) -> None:
    async with here.open() as session:
        reading = asyncio.create_task(turn(session, "@@stubborn@@"))
        await appears("stubborn-sleeper")
        began = asyncio.get_running_loop().time()
        await session.interrupt()
        judge(asyncio.get_running_loop().time() - began, 2.5)
        assert end_of(await reading).reason is EndReason.INTERRUPTED
        await disappears("stubborn-sleeper")


async def test_sub_agents_may_have_long_prompts_with_references(here: Sandbox) -> None:
    words = "Never print {env:HOME}. " + "Work well. " * 20_000
    writer = AgentSpec(name="writer", description="Writes {file:/nowhere}.", prompt=words, tools=["read"])
    async with here.open(agents=[writer]) as session:
        events = await turn(session, "@@write@@")
    assert end_of(events).text == "delegated"
    [call] = [call for call in here.server.calls if call.script == "written"]
    assert words.strip() in call.system
    assert not {"bash", "edit", "write"} & set(call.tools)


async def test_the_end_of_a_turn_has_the_text_of_the_last_message_only(here: Sandbox) -> None:
    async with here.open() as session:
        ended = await end(session, "@@output@@")
    assert ended == TurnEnded(EndReason.DONE, "done", ended.usage)
