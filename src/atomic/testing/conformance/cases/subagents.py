"""Cases about sub-agents: each has its own id, events and end."""

from __future__ import annotations

from atomic.providers import AgentSpec, SubagentEnded, SubagentStarted, TextDelta, ToolStarted
from atomic.testing.conformance.case import Cases, Stage, World
from atomic.testing.model_server import Script

cases = Cases("Sub-agents")
WORKER = AgentSpec(name="worker", description="Does a part of the work.", prompt="You are the worker of this test.")


def _one(stage: Stage) -> dict[str, Script]:
    return {
        "lead": [[stage.words.subagent("worker", f"{stage.mark('part')} Do it.")], "Lead heard: {{tool_result}}"],
        "part": [[stage.words.bash("echo part-ran")], "PART-DONE {{tool_result}}"],
    }


@cases.case(_one, needs=lambda can: can.subagents)
async def a_subagent_works(world: World) -> None:
    """Report the start, the tools and the end of a sub-agent under its id."""
    async with world.open(agents=[WORKER]) as session:
        heard = (await world.turn(session, "lead")).ended()
    [started] = heard.of(SubagentStarted)
    [ended] = heard.of(SubagentEnded)
    assert started.id == ended.id
    assert started.name == "worker"
    assert "PART-DONE" in ended.text
    assert ended.error is None
    assert [event.agent for event in heard.of(ToolStarted)] == [started.id]
    assert "PART-DONE" not in heard.streamed.replace(heard.end.text, "")
    assert "You are the worker" in world.calls("part")[0].system
    assert "PART-DONE" in heard.end.text


@cases.case(_one, needs=lambda can: can.subagents)
async def a_subagents_text_is_its_own(world: World) -> None:
    """Report a sub-agent's text under its id."""
    async with world.open(agents=[WORKER]) as session:
        heard = (await world.turn(session, "lead")).ended()
    [started] = heard.of(SubagentStarted)
    said = "".join(event.text for event in heard.of(TextDelta) if event.agent == started.id)
    assert "PART-DONE" in said


def _three(stage: Stage) -> dict[str, Script]:
    lead = [stage.words.subagent("worker", f"{stage.mark(f'part{n}')} Do part {n}.") for n in range(3)]
    parts: dict[str, Script] = {
        f"part{n}": [[stage.words.bash(f"echo ran-{n}")], f"PART-{n} {{{{tool_result}}}}"] for n in range(3)
    }
    return {"lead": [lead, "All: {{tool_result}}"], **parts}


@cases.case(_three, needs=lambda can: can.subagents)
async def three_subagents_at_once(world: World) -> None:
    """Run three sub-agents at once without mixing their events."""
    async with world.open(agents=[WORKER]) as session:
        heard = (await world.turn(session, "lead")).ended()
    started = heard.of(SubagentStarted)
    ended = heard.of(SubagentEnded)
    ids = {event.id for event in started}
    assert len(started) == len(ended) == len(ids) == 3
    assert {event.id for event in ended} == ids
    for end in ended:
        [number] = [n for n in range(3) if f"PART-{n}" in end.text]
        said = "".join(event.text for event in heard.of(TextDelta) if event.agent == end.id)
        assert not [n for n in range(3) if n != number and f"PART-{n}" in said]
    assert all(f"PART-{n}" in heard.end.text for n in range(3))


@cases.case(
    lambda stage: {
        "lead": [[stage.words.subagent("worker", f"{stage.mark('part')} Do it.")], "Lead: {{tool_result}}"],
        "part": [[stage.words.bash("touch forbidden.txt")], "Tried."],
    },
    needs=lambda can: can.subagents and can.tool_selection,
)
async def a_subagents_tools_are_bounded(world: World) -> None:
    """Give a sub-agent only the tools that its definition names."""
    reader = AgentSpec(name="worker", description="Only reads.", prompt="You only read.", tools=["read"])
    async with world.open(agents=[reader]) as session:
        await world.turn(session, "lead")
    offered = {name.lower() for name in world.calls("part")[0].tools}
    assert not offered & {"bash", "write", "create", "edit"}
    assert not (world.folder / "forbidden.txt").exists()
