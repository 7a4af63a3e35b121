"""Test features that are special to Copilot over ACP; the contract covers the rest."""

from __future__ import annotations

from pathlib import Path

from atomic.providers import (
    Compacted,
    EndReason,
    LimitReached,
    McpServer,
    Notice,
    SubagentEnded,
    SubagentStarted,
    ToolStarted,
)
from atomic.testing.model_server import Call, Fail, Pause, Script
from tests.providers.acp.sandbox import sandbox
from tests.providers.turns import all_of, end_of, text_of, turn

AGENT = "acp:copilot"


def task(script: str) -> Call:
    given = {"description": script, "prompt": f"@@{script}@@ go", "agent_type": "general-purpose", "mode": "sync"}
    return Call("task", {**given, "name": script})


def bash(command: str) -> Call:
    return Call("bash", {"command": command, "description": "x"})


async def test_messages_of_the_program_are_not_the_answer(tmp_path: Path) -> None:
    """Copilot sends notices and errors as text of the model, and ends a failed turn as done."""
    file = str(tmp_path / "a.txt")
    scripts: dict[str, Script] = {
        "write": [Call("create", {"path": file, "file_text": "alpha\n"}), "Written."],
        "fail": Fail(400, message="confused"),
    }
    async with sandbox(AGENT, tmp_path, scripts) as here, here.open() as session:
        written = await turn(session, "@@write@@ go")
        assert text_of(written) == end_of(written).text == "Written."
        assert [notice.text for notice in all_of(Notice, written)] == [file]
        failed = end_of(await turn(session, "@@fail@@ go"))
        assert failed.reason is EndReason.ERROR
        assert "confused" in (failed.error or "")
        assert end_of(await turn(session, "@@write@@ go")).reason is EndReason.DONE


async def test_a_limit_ends_the_turn(tmp_path: Path) -> None:
    """Copilot gives up at once if the provider names a time that is far away."""
    scripts: dict[str, Script] = {"long": Fail(429, message="too many requests", headers={"retry-after": "600"})}
    async with sandbox(AGENT, tmp_path, scripts) as here, here.open() as session:
        events = await turn(session, "@@long@@ go")
    assert end_of(events).reason is EndReason.LIMIT
    assert len(all_of(LimitReached, events)) == 1


async def test_sub_agents_have_their_own_text_tools_and_end(tmp_path: Path) -> None:
    scripts: dict[str, Script] = {
        "lead": [task("part"), "Lead."],
        "part": [["On it. ", bash("echo ran")], "PART"],
        "three": [[task("p0"), task("p1"), task("p2")], "All."],
        **{f"p{n}": [[Pause(0.8 - 0.4 * n), bash(f"echo ran-{n}")], f"PART-{n}"] for n in range(3)},
    }
    async with sandbox(AGENT, tmp_path, scripts) as here, here.open() as session:
        one = await turn(session, "@@lead@@ go")
        three = await turn(session, "@@three@@ go")
    [started] = all_of(SubagentStarted, one)
    [ended] = all_of(SubagentEnded, one)
    assert (started.name, started.task, ended.id) == ("general-purpose", "@@part@@ go", started.id)
    assert (ended.text, ended.error) == ("PART", None)
    assert text_of(one, started.id) == "On it. PART"
    assert [event.agent for event in all_of(ToolStarted, one)] == [started.id]
    assert text_of(one) == end_of(one).text == "Lead."
    assert {event.id for event in all_of(SubagentStarted, three)} == {
        event.id for event in all_of(SubagentEnded, three)
    }
    assert sorted(event.text for event in all_of(SubagentEnded, three)) == ["PART-0", "PART-1", "PART-2"]
    assert text_of(three) == end_of(three).text == "All."
    assert all(event.agent for event in all_of(ToolStarted, three))
    assert len({event.agent for event in all_of(ToolStarted, three)}) == 3
    # Copilot does not report which of the three ran a tool: no name is better than a wrong one.
    tasks = {event.id: event.task for event in all_of(SubagentStarted, three)}
    for event in all_of(ToolStarted, three):
        number = event.input["command"][-1]
        assert tasks.get(event.agent or "", f"@@p{number}@@ go") == f"@@p{number}@@ go"


async def test_each_turn_has_its_own_usage(tmp_path: Path) -> None:
    """Copilot reports the sum of all turns."""
    async with sandbox(AGENT, tmp_path, {"hi": "Hello."}) as here, here.open() as session:
        usages = [end_of(await turn(session, "@@hi@@ go")).usage for _ in range(3)]
    assert [(usage.input, usage.output) for usage in usages] == [(100, 20)] * 3


async def test_the_system_prompt_is_repeated_after_a_summary(tmp_path: Path) -> None:
    async with sandbox(AGENT, tmp_path, {"hi": "Hello."}) as here:
        async with here.open(system_prompt="You keep a lighthouse.") as session:
            for _ in range(2):
                assert end_of(await turn(session, "@@hi@@ go")).text == "Hello."
            events = await turn(session, "/compact keep the numbers")
            assert all_of(Compacted, events)
            await turn(session, "@@hi@@ go")
        has_prompt = ["You keep a lighthouse." in call.user_text for call in here.server.calls if call.tools]
    assert has_prompt[0]
    assert has_prompt[-1]


async def test_custom_tools_are_available_besides_a_list_of_tools(tmp_path: Path) -> None:
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    scripts: dict[str, Script] = {"hi": "Hello.", "sum": [Call("atomic-add", {"a": 1, "b": 2}), "{{tool_result}}"]}
    async with sandbox(AGENT, tmp_path, scripts) as here:
        async with here.open(tools=["read"], denied_tools=["bash"], custom_tools=[add]) as session:
            assert end_of(await turn(session, "@@sum@@ go")).text == "3"
        assert set(here.server.calls[0].tools) == {"view", "atomic-add"}


async def test_secrets_of_mcp_servers_are_not_in_command_lines(tmp_path: Path) -> None:
    server = McpServer(name="box", command=["true"], env={"SECRET": "very-secret"})
    async with sandbox(AGENT, tmp_path, {"hi": "Hello."}) as here, here.open(mcp_servers=[server]) as session:
        assert end_of(await turn(session, "@@hi@@ go")).text == "Hello."
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert [line for line in lines if b"--additional-mcp-config" in line]
    assert not [line for line in lines if b"very-secret" in line]


async def test_a_prompt_may_begin_with_a_path(tmp_path: Path) -> None:
    async with sandbox(AGENT, tmp_path, {"hi": "Hello."}) as here, here.open() as session:
        assert end_of(await turn(session, "/etc/hosts @@hi@@ is wrong")).text == "Hello."
