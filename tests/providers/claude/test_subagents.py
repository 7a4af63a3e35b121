"""Test sub-agents: each has one id, one start and one end, and a turn lasts until all have ended."""

from __future__ import annotations

from pathlib import Path

from atomic.providers import AgentSpec, EndReason, SubagentEnded, SubagentStarted, ToolEnded, ToolStarted, UsageReported
from atomic.testing.model_server import Fail, Pause, Say
from tests.providers.claude.sandbox import agent, bash, sandbox
from tests.providers.turns import all_of, end_of, text_of, turn


async def test_a_turn_lasts_until_three_background_sub_agents_have_ended(tmp_path: Path) -> None:
    scripts = {
        "all": [[Say("I start."), agent("one"), agent("two"), agent("three")], *["And?"] * 4],
        **{
            name: [
                [Say(f"{name} works"), bash(f"echo from-{name}")],
                [Pause(delay), Say(f"{name}: {{{{tool_result}}}}")],
            ]
            for name, delay in {"one": 0.2, "two": 0.5, "three": 0.8}.items()
        },
    }
    async with sandbox(tmp_path, scripts) as here, here.open() as session:
        events = await turn(session, "@@all@@ go")
    started = all_of(SubagentStarted, events)
    ended = all_of(SubagentEnded, events)
    ids = [one.id for one in started]
    assert len(set(ids)) == 3
    assert [one.task for one in started] == ["@@one@@ go", "@@two@@ go", "@@three@@ go"]
    assert [(one.id, one.text, one.error) for one in ended] == [
        (id, f"{name}: from-{name}", None) for id, name in zip(ids, ("one", "two", "three"), strict=True)
    ]
    for id, name in zip(ids, ("one", "two", "three"), strict=True):
        assert text_of(events, id) == f"{name} works{name}: from-{name}"
        tools = [one for one in events if isinstance(one, ToolStarted | ToolEnded) and one.agent == id]
        assert [type(one) for one in tools] == [ToolStarted, ToolEnded]
        assert any(one.agent == id for one in all_of(UsageReported, events))
    # The call that starts a sub-agent is not reported as a tool.
    assert all(one.agent is not None for one in all_of(ToolStarted, events))
    assert end_of(events).reason is EndReason.DONE
    assert end_of(events).text == "And?"
    assert end_of(events).usage.input == 100 * len(here.server.calls)  # with the calls of sub-agents


async def test_sub_agents_may_be_custom_nested_or_failing(tmp_path: Path) -> None:
    worker = AgentSpec(name="worker", description="works", prompt="You are the WORKER.", tools=["bash"], model="haiku")
    scripts = {
        "outer": [agent("inner", run_in_background=False), "end"],
        "inner": [agent("deep", run_in_background=False), "inner done"],
        "deep": [[bash("echo deep")], "deep done"],
        "ours": [agent("mine", subagent_type="worker", run_in_background=False), "end"],
        "mine": [bash("echo mine"), "mine done"],
        "bad": [[agent("broken", run_in_background=False), agent("none", subagent_type="missing")], "end", "end"],
        "broken": Fail(400, message="broken child"),
    }
    async with sandbox(tmp_path, scripts) as here, here.open(agents=[worker]) as session:
        events = await turn(session, "@@outer@@ go")
        outer, inner = all_of(SubagentStarted, events)
        assert (outer.agent, inner.agent) == (None, outer.id)
        assert [(one.id, one.text) for one in all_of(SubagentEnded, events)] == [
            (inner.id, "deep done"),
            (outer.id, "inner done"),
        ]
        assert [one.agent for one in all_of(ToolStarted, events)] == [inner.id]

        events = await turn(session, "@@ours@@ go")
        assert [one.name for one in all_of(SubagentStarted, events)] == ["worker"]
        call = next(call for call in here.server.calls if call.script == "mine")
        assert "You are the WORKER." in call.system
        assert "haiku" in call.model
        assert call.tools == ("Bash",)

        events = await turn(session, "@@bad@@ go")
        broken, none = all_of(SubagentStarted, events)
        errors = {one.id: one.error or "" for one in all_of(SubagentEnded, events)}
        assert "broken child" in errors[broken.id]
        assert "'missing' not found" in errors[none.id]
        assert end_of(events).reason is EndReason.DONE


async def test_a_background_shell_neither_delays_its_turn_nor_answers_the_next(tmp_path: Path) -> None:
    release = tmp_path / "release"
    wait = f"until [ -e '{release}' ]; do sleep 0.05; done; echo through"
    scripts = {
        "shell": [bash(wait, run_in_background=True), "waiting", [Pause(0.5), "woken"]],
        "say": "hello",
    }
    async with sandbox(tmp_path, scripts) as here, here.open() as session:
        assert end_of(await turn(session, "@@shell@@ go")).text == "waiting"
        release.touch()
        # The program starts this call by itself.
        await here.server.wait_for(lambda call: call.script == "shell" and call.turn == 2)
        events = await turn(session, "@@say@@ go")
        assert text_of(events) == end_of(events).text == "hello"
        assert end_of(events).usage.input == 200  # includes the call without a prompt
