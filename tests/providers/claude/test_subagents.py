"""Sub-agents: each with one id, one start and one end; a turn lasts until the last of them has come back."""

from __future__ import annotations

from pathlib import Path

from atomic.providers import AgentSpec, EndReason, SubagentEnded, SubagentStarted, ToolEnded, ToolStarted, UsageReported
from atomic.testing.model_server import Fail, Pause, Say
from tests.providers.claude.place import agent, bash, place
from tests.providers.turns import all_of, end_of, text_of, turn


async def test_three_in_the_background_hold_the_turn_until_all_are_back(tmp_path: Path) -> None:
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
    async with place(tmp_path, scripts) as here, here.open() as session:
        events = await turn(session, "@@all@@ go")
    started, ended = all_of(SubagentStarted, events), all_of(SubagentEnded, events)
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
    assert all(one.agent is not None for one in all_of(ToolStarted, events))  # the call of one is no tool, too
    assert end_of(events).reason is EndReason.DONE
    assert end_of(events).text == "And?"
    assert end_of(events).usage.input == 100 * len(here.server.calls)  # theirs, too


async def test_our_own_agents_one_within_another_and_those_that_fail(tmp_path: Path) -> None:
    worker = AgentSpec(name="worker", description="works", prompt="You are the WORKER.", tools=["bash"], model="haiku")
    scripts = {
        "outer": [agent("inner", run_in_background=False), "end"],
        "inner": [agent("deep", run_in_background=False), "inner done"],
        "deep": [[bash("echo deep")], "deep done"],
        "ours": [agent("mine", subagent_type="worker", run_in_background=False), "end"],
        "mine": [bash("echo mine"), "mine done"],
        "bad": [[agent("broken", run_in_background=False), agent("none", subagent_type="nobody")], "end", "end"],
        "broken": Fail(400, message="broken child"),
    }
    async with place(tmp_path, scripts) as here, here.open(agents=[worker]) as session:
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
        assert "'nobody' not found" in errors[none.id]
        assert end_of(events).reason is EndReason.DONE


async def test_a_shell_in_the_background_does_not_hold_the_turn_nor_answer_the_next(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    wait = f"until [ -e '{gate}' ]; do sleep 0.05; done; echo through"
    scripts = {
        "shell": [bash(wait, run_in_background=True), "waiting", [Pause(0.5), "woken"]],
        "say": "hello",
    }
    async with place(tmp_path, scripts) as here, here.open() as session:
        assert end_of(await turn(session, "@@shell@@ go")).text == "waiting"
        gate.touch()
        await here.server.wait_for(lambda call: call.script == "shell" and call.turn == 2)  # nobody asked it to
        events = await turn(session, "@@say@@ go")
        assert text_of(events) == end_of(events).text == "hello"
        assert end_of(events).usage.input == 200  # what it did unasked is paid for, too
