"""Cases about tools: the agent's own, denied ones, custom ones and those of MCP servers."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from atomic.providers import McpServer, ToolEnded, ToolStarted, tool
from atomic.testing.conformance.case import Cases, Stage, World
from atomic.testing.model_server import Say, Script

cases = Cases("Tools")
MCP_SERVER = Path(__file__).with_name("mcp_server.py")


def _work(stage: Stage) -> dict[str, Script]:
    words = stage.words
    file = stage.folder / "a.txt"
    return {
        "work": [
            [words.write(file, "alpha\n")],
            [words.edit(file, "alpha", "beta")],
            [words.bash("cat a.txt && echo ran > b.txt")],
            "Done: {{tool_result}}",
        ]
    }


@cases.case(_work)
async def tools_write_edit_and_run(world: World) -> None:
    """Change real files and run real programs without asking."""
    async with world.open() as session:
        heard = (await world.turn(session, "work")).ended()
    assert (world.folder / "a.txt").read_text() == "beta\n"
    assert (world.folder / "b.txt").read_text() == "ran\n"
    started = heard.of(ToolStarted)
    ended = heard.of(ToolEnded)
    assert len(started) == len({event.id for event in started}) == 3
    assert [event.id for event in ended] == [event.id for event in started]
    assert all(event.input and event.agent is None for event in started)
    assert not [event.error for event in ended if event.error]
    assert "beta" in ended[2].output
    assert "beta" in heard.end.text


@cases.case(lambda stage: {"fail": [[stage.words.edit(stage.folder / "no.txt", "a", "b")], "It failed."]})
async def a_tool_that_fails_is_told(world: World) -> None:
    """Report why a tool failed, and continue the turn."""
    async with world.open() as session:
        heard = (await world.turn(session, "fail")).ended()
    [end] = heard.of(ToolEnded)
    assert end.error
    assert heard.end.text == "It failed."


def _two_at_once(stage: Stage) -> dict[str, Script]:
    return {"two": [[stage.words.bash("echo first"), stage.words.bash("echo second")], "Both."]}


@cases.case(_two_at_once)
async def two_tools_at_once_have_their_own_ids(world: World) -> None:
    """Report two calls in one message as two tools."""
    async with world.open() as session:
        heard = (await world.turn(session, "two")).ended()
    ids = {event.id for event in heard.of(ToolStarted)}
    assert len(ids) == 2
    assert ids == {event.id for event in heard.of(ToolEnded)}
    outputs = " ".join(event.output for event in heard.of(ToolEnded))
    assert "first" in outputs
    assert "second" in outputs


@cases.case(
    lambda stage: {"try": [[stage.words.bash("touch forbidden.txt")], Say("Tried.")]},
    needs=lambda can: can.tool_selection,
)
async def a_denied_tool_is_not_available(world: World) -> None:
    """Offer no denied tool to the model, and ignore a call of it."""
    async with world.open(denied_tools=["bash"]) as session:
        await world.turn(session, "try")
    assert "bash" not in {name.lower() for name in world.calls("try")[0].tools}
    assert not (world.folder / "forbidden.txt").exists()


@cases.case(
    lambda stage: {"try": [[stage.words.bash("touch forbidden.txt")], Say("Tried.")]},
    needs=lambda can: can.tool_selection,
)
async def only_the_named_tools_are_available(world: World) -> None:
    """Offer only the listed tools, and ignore a call of another."""
    async with world.open(tools=["read"]) as session:
        await world.turn(session, "try")
    offered = {name.lower() for name in world.calls("try")[0].tools}
    assert offered & {"read", "view"}
    assert not offered & {"bash", "write", "create", "edit"}
    assert not (world.folder / "forbidden.txt").exists()


@cases.case(lambda stage: {"no": "Nothing."}, needs=lambda can: can.tool_selection)
async def no_tools_at_all(world: World) -> None:
    """Offer no tool that reads, writes or runs for an empty list of tools."""
    async with world.open(tools=[]) as session:
        assert (await world.turn(session, "no")).ended()
    call = next(call for call in world.server.calls if world.stage.mark("no") in call.user_text)
    assert not {name.lower() for name in call.tools} & {"bash", "write", "create", "edit", "read", "view"}


def _sums(stage: Stage) -> dict[str, Script]:
    return {"sum": [[stage.words.custom("add", {"a": 40, "b": 2})], "Sum: {{tool_result}}"]}


@cases.case(_sums, needs=lambda can: can.custom_tools)
async def a_custom_tool_returns(world: World) -> None:
    """Call a typed Python function as a tool."""
    seen: list[tuple[int, int]] = []

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        seen.append((a, b))
        return a + b

    async with world.open(custom_tools=[add]) as session:
        heard = (await world.turn(session, "sum")).ended()
    assert seen == [(40, 2)]
    assert [event.name for event in heard.of(ToolStarted)] == ["add"], heard
    assert "42" in heard.end.text


@cases.case(_sums, needs=lambda can: can.custom_tools)
async def a_custom_tool_raises(world: World) -> None:
    """Send the error of a custom tool to the agent, and continue the turn."""

    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        raise ValueError("numbers are out of stock")

    async with world.open(custom_tools=[tool(add)]) as session:
        heard = (await world.turn(session, "sum")).ended()
    assert "out of stock" in world.calls("sum")[1].tool_result
    assert [event for event in heard.of(ToolEnded) if event.error]


@cases.case(_sums, needs=lambda can: can.custom_tools, long=True)
async def a_custom_tool_takes_its_time(world: World) -> None:
    """Wait half a minute for a custom tool."""

    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        await asyncio.sleep(30)
        return a + b

    async with world.open(custom_tools=[add]) as session:
        heard = (await world.turn(session, "sum")).ended()
    assert "42" in heard.end.text


@cases.case(
    lambda stage: {"mcp": [[stage.words.mcp("box", "add", {"a": 3, "b": 40})], "Sum: {{tool_result}}"]},
    needs=lambda can: can.mcp_servers,
)
async def an_mcp_server_brings_tools(world: World) -> None:
    """Use the tools of an MCP server that the caller names."""
    async with world.open(mcp_servers=[McpServer(name="box", command=[sys.executable, str(MCP_SERVER)])]) as session:
        heard = (await world.turn(session, "mcp")).ended()
    assert "43" in heard.end.text
