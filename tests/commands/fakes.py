"""A host that records the calls of commands, and commands to fill a registry."""

from __future__ import annotations

from collections.abc import Sequence

from atomic.commands import (
    AgentTask,
    Category,
    Command,
    CommandCall,
    CommandContext,
    CommandRegistry,
    LimitedContext,
    SessionSummary,
    TurnPrompt,
    builtin_commands,
)
from atomic.mcp import McpAnswer, McpList
from atomic.providers import ModelInfo


async def nothing(call: CommandCall, context: CommandContext) -> None:
    """Do nothing."""


def command(name: str, category: str = "skill", *aliases: str, hint: str = "", hidden: bool = False) -> Command:
    return Command(name, f"About {name}.", Category(category), nothing, aliases, hint, hidden)


class FakeHost(LimitedContext):
    """A host that supports everything, and only records each call in `done`."""

    def __init__(self, *commands: Command, agents: Sequence[str] = ()) -> None:
        self.commands = CommandRegistry.of([*builtin_commands(), *commands])
        self.shown: list[str] = []
        self.done: list[tuple[object, ...]] = []
        self.streaming = False
        self.agents = agents
        self.servers = McpList([])
        self.answers: Sequence[McpAnswer] = ()

    @property
    def is_streaming(self) -> bool:
        return self.streaming

    def is_agent(self, name: str) -> bool:
        return name in self.agents

    def show(self, text: str) -> None:
        self.shown.append(text)

    async def turn(self, prompt: TurnPrompt) -> None:
        self.done.append(("turn", prompt))

    async def spawn(self, tasks: Sequence[AgentTask]) -> None:
        self.done.append(("spawn", *((task.agent, task.task) for task in tasks)))

    async def run_workflow(self, name: str, arguments: str, attached: str = "") -> None:
        self.done.append(("workflow", name, arguments, attached))

    async def new_conversation(self) -> None:
        self.done.append(("new conversation",))

    async def compact(self, focus: str) -> None:
        self.done.append(("compact", focus))

    async def models(self, provider: str | None, *, refresh: bool = False) -> Sequence[ModelInfo]:
        self.done.append(("models", provider, refresh))
        return [ModelInfo("opus", "Opus", 200_000), ModelInfo("tiny", "tiny")]

    async def pick_model(self) -> None:
        self.done.append(("pick model",))

    async def set_model(self, model: str) -> None:
        self.done.append(("set model", model))

    async def pick_provider(self) -> None:
        self.done.append(("pick provider",))

    async def switch_provider(self, name: str) -> None:
        self.done.append(("switch provider", name))

    def themes(self) -> Sequence[str]:
        return ["dark", "light"]

    async def pick_theme(self) -> None:
        self.done.append(("pick theme",))

    async def set_theme(self, name: str) -> None:
        self.done.append(("set theme", name))

    def mcp_servers(self) -> McpList:
        return self.servers

    async def mcp_tools(self) -> Sequence[McpAnswer]:
        return self.answers

    async def set_mcp_server(self, name: str, enabled: bool) -> None:
        self.done.append(("mcp", name, enabled))

    async def sessions(self) -> Sequence[SessionSummary]:
        return [SessionSummary("1f2e3d4c", "Add login", "paused", "2030-01-02 03:04")]

    async def open_session(self, id: str) -> None:
        self.done.append(("open", id))

    async def run_branch_verb(self, verb: str, words: Sequence[str]) -> None:
        self.done.append(("branch", verb, *words))

    async def leave(self) -> None:
        self.done.append(("leave",))


class BareHost(LimitedContext):
    """A host that can only show texts."""

    name = "A bare host"

    def __init__(self) -> None:
        self.commands = CommandRegistry(builtin_commands())
        self.shown: list[str] = []

    def show(self, text: str) -> None:
        self.shown.append(text)
