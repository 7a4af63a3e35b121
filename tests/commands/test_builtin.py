"""The built-in commands: what each asks of its host."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomic.base.errors import AtomicError
from atomic.commands import (
    BusyError,
    Command,
    CommandError,
    CommandUsageError,
    UnsupportedError,
    builtin_commands,
    dispatch,
)
from atomic.mcp import Location, McpAnswer, McpEntry, McpList, Origin, Transport
from tests.commands.fakes import BareHost, FakeHost, command

TABLE = [
    ("help", ("h", "?"), "[command]"),
    ("clear", ("cls",), ""),
    ("compact", (), "[focus]"),
    ("model", ("m",), "select | refresh | list [provider] | <model>"),
    ("agent", (), "[claude | opencode | copilot | acp:NAME]"),
    ("theme", (), "[name]"),
    ("mcp", (), "[enable | disable <server>]"),
    ("sessions", (), "[id]"),
    ("resume", (), "[id]"),
    ("diff", (), "[run] [task]"),
    ("accept", (), "[run] [--squash] [--fix]"),
    ("undo", (), "[run] <task>"),
    ("discard", (), "[run]"),
    ("exit", ("quit", "q"), ""),
]


def test_names_aliases_and_hints_match_the_specification() -> None:
    assert [(one.name, tuple(one.aliases), one.argument_hint) for one in builtin_commands()] == TABLE
    assert all(one.description and one.category == "builtin" and not one.hidden for one in builtin_commands())


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("/clear", ("new conversation",)),
        ("/cls", ("new conversation",)),
        ("/compact", ("compact", "")),
        ("/compact the tests", ("compact", "the tests")),
        ("/model", ("pick model",)),
        ("/model select", ("pick model",)),
        ("/m opus", ("set model", "opus")),
        ("/model list", ("models", None, False)),
        ("/model list copilot", ("models", "copilot", False)),
        ("/model refresh", ("models", None, True)),
        ("/agent", ("pick provider",)),
        ("/agent acp:gemini", ("switch provider", "acp:gemini")),
        ("/theme", ("pick theme",)),
        ("/theme Dark", ("set theme", "dark")),
        ("/sessions 1f2e", ("open", "1f2e")),
        ("/resume 1f2e", ("open", "1f2e")),
        ("/diff", ("branch", "diff")),
        ("/accept --fix", ("branch", "accept", "--fix")),
        ("/undo 3f2a9c1e 4", ("branch", "undo", "3f2a9c1e", "4")),
        ("/discard", ("branch", "discard")),
        ("/exit", ("leave",)),
        ("/quit", ("leave",)),
        ("/q", ("leave",)),
    ],
)
async def test_a_command_asks_its_host(typed: str, asked: tuple[object, ...]) -> None:
    host = FakeHost()
    assert await dispatch(typed, host)
    assert host.done == [asked]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("/clear all", "/clear takes no arguments"),
        ("/exit now", "/exit takes no arguments"),
        ("/model list a b", '/model takes select, refresh, list [provider] or a model, not "list a b"'),
        ("/model opus please", '/model takes select, refresh, list [provider] or a model, not "opus please"'),
        ("/mcp enable", '/mcp takes nothing, or enable or disable and a server, not "enable"'),
        ("/mcp restart x", '/mcp takes nothing, or enable or disable and a server, not "restart x"'),
    ],
)
async def test_arguments_that_mean_nothing_are_refused(typed: str, message: str) -> None:
    host = FakeHost()
    with pytest.raises(CommandUsageError) as caught:
        await dispatch(typed, host)
    assert (str(caught.value), host.done) == (message, [])


@pytest.mark.parametrize("typed", ["/model opus", "/model", "/model select", "/agent claude", "/compact"])
async def test_what_needs_a_quiet_conversation_is_refused_while_streaming(typed: str) -> None:
    host = FakeHost()
    host.streaming = True
    with pytest.raises(BusyError, match="has to wait: the agent is answering"):
        await dispatch(typed, host)
    assert host.done == []


async def test_models_can_be_listed_while_streaming() -> None:
    host = FakeHost()
    host.streaming = True
    await dispatch("/model list", host)
    assert host.shown == ["opus  Opus  200,000 tokens\ntiny"]


async def test_sessions_are_listed() -> None:
    for typed in ("/sessions", "/resume"):
        host = FakeHost()
        await dispatch(typed, host)
        assert host.shown == ["1f2e3d4c  paused  2030-01-02 03:04  Add login"]


async def test_an_unknown_theme_is_an_error_with_the_nearest() -> None:
    with pytest.raises(CommandError, match=r'^Theme not found: "drak" \(did you mean "dark"\?\)$'):
        await dispatch("/theme drak", FakeHost())


def server(name: str, **more: object) -> McpEntry:
    fields = {
        "transport": Transport.STDIO,
        "origin": Origin.CLAUDE,
        "location": Location.PROJECT,
        "path": Path("/p/.mcp.json"),
    }
    return McpEntry(name=name, **{**fields, **more})  # pyright: ignore[reportArgumentType]  # fields of many types


async def test_mcp_servers_are_listed_with_state_and_origin_and_without_secrets() -> None:
    host = FakeHost()
    token = "ghp_" + "a" * 36
    host.servers = McpList(
        [
            server("mine", location=Location.USER, command=("mine",)),
            server("gone", location=Location.USER, command=("gone",)),
            server("files", command=("npx", "files", "--api-key", "s3cr3t-value"), env={"API_KEY": "s3cr3t-value"}),
            server("web", transport=Transport.HTTP, url=f"https://x.test/mcp?key={token}", enabled=False),
            server("web", origin=Origin.ATOMIC, hidden_by=Path("/p/.mcp.json")),
        ]
    )
    mine, gone = host.servers.entries[:2]
    host.answers = [
        McpAnswer(entry=mine, resolved=mine, tools=["add", "subtract"]),
        McpAnswer(entry=gone, resolved=gone, error='Program not found: "gone"'),
    ]
    await dispatch("/mcp", host)
    (shown,) = host.shown
    mine, tools, gone, why, files, web, hidden = shown.splitlines()
    assert mine.split()[:5] == ["mine", "on", "stdio", "claude,", "user"]
    assert tools == "  tools: add, subtract"
    assert gone.split()[:2] == ["gone", "failed"]
    assert why == '  failed: Program not found: "gone"'
    assert files.split()[:6] == ["files", "needs", "trust", "stdio", "claude,", "project"]
    assert web.split()[:5] == ["web", "off", "http", "claude,", "project"]
    assert "npx files" in files
    assert "https://x.test/mcp" in web
    assert "hidden by /p/.mcp.json" in hidden
    assert token not in shown
    assert "s3cr3t" not in shown


async def test_the_tools_of_a_server_are_cut_to_the_width() -> None:
    host = FakeHost()
    mine = server("mine", location=Location.USER)
    host.servers = McpList([mine])
    host.answers = [McpAnswer(entry=mine, resolved=mine, tools=[f"tool\n{number}" for number in range(100)])]
    await dispatch("/mcp", host)
    _, tools = host.shown[0].splitlines()
    assert tools.startswith("  tools: tool 0, tool 1, ")
    assert len(tools) == host.width
    assert tools.endswith("…")
    host.answers = [McpAnswer(entry=mine, resolved=mine)]
    await dispatch("/mcp", host)
    assert host.shown[1].splitlines()[1] == "  tools: none"


@pytest.mark.parametrize(("verb", "state"), [("enable", True), ("disable", False)])
async def test_an_mcp_server_is_switched(verb: str, state: bool) -> None:
    host = FakeHost()
    host.servers = McpList([server("Files")])
    await dispatch(f"/mcp {verb} files", host)
    assert host.done == [("mcp", "Files", state)]
    with pytest.raises(CommandError, match=r'^MCP server not found: "fils" \(did you mean "Files"\?\)$'):
        await dispatch(f"/mcp {verb} fils", host)


async def test_mcp_without_servers_shows_that_there_are_no_servers() -> None:
    host = FakeHost()
    await dispatch("/mcp", host)
    assert host.shown == ["There are no MCP servers."]


async def help_of(typed: str, *commands: Command) -> str:
    host = FakeHost(*commands)
    await dispatch(typed, host)
    (shown,) = host.shown
    return shown


async def test_help_lists_commands_by_category() -> None:
    shown = await help_of(
        "/help", command("tag", "command"), command("ralph", "workflow"), command("commit", "skill", hint="[message]"),
        command("planner", "agent"), command("secret", "agent", hidden=True),
    )  # fmt: skip
    titles = [line for line in shown.splitlines() if line and not line.startswith(" ")]
    assert titles == ["Slash Commands", "Workflows", "Skills", "Sub-Agents"]
    sections = dict(zip(titles, (part.split("\n", 1)[1] for part in shown.split("\n\n")), strict=True))
    assert {f"/{name}" for name, _, _ in TABLE} | {"/tag"} == {
        line.split()[0] for line in sections["Slash Commands"].splitlines()
    }
    assert sections["Workflows"].split() == ["/ralph", "About", "ralph."]
    assert sections["Skills"].split() == ["/commit", "[message]", "About", "commit."]
    assert sections["Sub-Agents"].split() == ["/planner", "About", "planner."]


async def test_a_category_without_commands_is_not_listed() -> None:
    assert "Workflows" not in await help_of("/h")


async def test_help_fits_the_width() -> None:
    long = Command("x", "words " * 100, builtin_commands()[0].category, builtin_commands()[0].run)
    lines = (await help_of("/help", long)).splitlines()
    assert max(map(len, lines)) == 100
    assert next(line for line in lines if "/x " in line).endswith("…")


@pytest.mark.parametrize("typed", ["/help model", "/? /model", "/h M"])
async def test_help_shows_one_command_in_detail(typed: str) -> None:
    assert (await help_of(typed)).splitlines() == [
        "/model select | refresh | list [provider] | <model>",
        "pick a model, or switch to it",
        "",
        "category: Slash Commands",
        "aliases: /m",
    ]


async def test_help_shows_the_commands_that_a_command_hides() -> None:
    shown = await help_of("/help plan", command("plan", "skill"), command("Plan", "agent"))
    assert shown.splitlines()[-1] == "hides: the agent /Plan"


async def test_help_of_an_unknown_command_is_an_error_with_the_nearest() -> None:
    with pytest.raises(CommandError, match=r'^Command not found: "/modle" \(did you mean "/model"\?\)$'):
        await dispatch("/help modle", FakeHost())


@pytest.mark.parametrize(
    "typed",
    ["/clear", "/compact", "/model", "/model opus", "/model list", "/agent", "/agent claude", "/theme", "/theme dark",
     "/mcp", "/mcp enable x", "/sessions", "/resume 1", "/diff", "/accept",
     "/undo 1", "/discard", "/exit"],
)  # fmt: skip
async def test_a_host_refuses_unsupported_commands_instead_of_ignoring_them(typed: str) -> None:
    host = BareHost()
    with pytest.raises(UnsupportedError, match=r"^A bare host cannot "):
        await dispatch(typed, host)
    assert host.shown == []


async def test_text_is_left_for_the_agent() -> None:
    for text in ("hello", "/home/me/x", "me@planner", "@nobody do it"):
        host = FakeHost(agents=["planner"])
        assert not await dispatch(text, host)
        assert (host.done, host.shown) == ([], [])


async def test_an_unknown_command_is_an_error_and_not_for_the_agent() -> None:
    with pytest.raises(AtomicError, match=r'^Command not found: "/comit" \(did you mean "/commit"\?\)$'):
        await dispatch("/comit fix", FakeHost(command("commit")))
