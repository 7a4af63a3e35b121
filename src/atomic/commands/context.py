"""All that a command may ask of its host: the screen, `atomic -p`, a test.

A command sees nothing else, so it runs in each of them alike. What a host cannot do it refuses with one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from atomic.commands.errors import UnsupportedError
from atomic.commands.registry import CommandRegistry
from atomic.deferred import deferred
from atomic.providers import AgentLike, ModelInfo

if TYPE_CHECKING:
    from atomic.mcp import McpAnswer, McpList
else:
    McpAnswer = deferred("atomic.mcp", "McpAnswer")
    McpList = deferred("atomic.mcp", "McpList")


class TurnPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the conversation, as an entity wants it."""

    text: str
    model: str | None = None  # None: that of the conversation
    original_model: str | None = None  # as its file says it, for the provider that the file was written for
    provider: str = ""  # the provider that the file was written for
    tools: Sequence[str] | None = None  # None: all
    denied_tools: Sequence[str] = ()
    system_prompt: str | None = None  # of the agent that is to do it
    subtask: bool = False  # in a session of its own: what it reads does not fill the conversation
    agents: Sequence[AgentLike] = ()  # those that its text speaks of, to be called from within


class AgentTask(msgspec.Struct, frozen=True):
    """What a sub-agent is to do."""

    agent: str
    task: str


class SessionSummary(msgspec.Struct, frozen=True):
    """A run or a conversation that can be opened again."""

    id: str
    title: str
    status: str
    updated: str


class CommandContext(Protocol):
    """A host of commands. Its methods raise AtomicError; what it cannot do at all is an UnsupportedError."""

    @property
    def commands(self) -> CommandRegistry:
        """The commands of this prompt."""
        ...

    @property
    def is_streaming(self) -> bool:
        """Whether the agent is answering now."""
        ...

    @property
    def width(self) -> int:
        """The columns that a line may have."""
        ...

    def is_agent(self, name: str) -> bool:
        """Whether there is an agent of that name, also one whose name a command has."""
        ...

    def show(self, text: str) -> None:
        """Show a text. It may come from a stranger's file: control characters are not obeyed."""
        ...

    async def turn(self, prompt: TurnPrompt) -> None:
        """Run one turn of the conversation to its end."""
        ...

    async def spawn(self, tasks: Sequence[AgentTask]) -> None:
        """Run sub-agents to their end, all at once, and show what each says."""
        ...

    async def run_workflow(self, name: str, arguments: str, attached: str = "") -> None:
        """Run a workflow to its end; one without a graph gives its prompt to the conversation.

        `arguments` are flags and the prompt; `attached` follows the prompt, and nothing in it is a flag.
        """
        ...

    async def new_conversation(self) -> None:
        """Begin again, in a new session."""
        ...

    async def compact(self, focus: str) -> None:
        """Summarise the context; the transcript stays."""
        ...

    async def models(self, provider: str | None, *, refresh: bool = False) -> Sequence[ModelInfo]:
        """The models of a provider, else of the one in use; `refresh` asks it again."""
        ...

    async def pick_model(self) -> None:
        """Let the person choose a model."""
        ...

    async def set_model(self, model: str) -> None:
        """Use another model from now on."""
        ...

    async def pick_provider(self) -> None:
        """Let the person choose a provider."""
        ...

    async def switch_provider(self, name: str) -> None:
        """Go on with another provider; the conversation's summary goes along."""
        ...

    def themes(self) -> Sequence[str]:
        """The names of the themes."""
        ...

    async def pick_theme(self) -> None:
        """Let the person choose a theme, with a preview."""
        ...

    async def set_theme(self, name: str) -> None:
        """Use a theme from now on."""
        ...

    def mcp_servers(self) -> McpList:
        """The MCP servers of all dialects."""
        ...

    async def mcp_tools(self) -> Sequence[McpAnswer]:
        """Ask the servers that may be used here for their tools: those that are on, a project's only if trusted."""
        ...

    async def set_mcp_server(self, name: str, enabled: bool) -> None:
        """Switch a server on or off."""
        ...

    async def sessions(self) -> Sequence[SessionSummary]:
        """Runs and conversations, the newest first."""
        ...

    async def open_session(self, id: str) -> None:
        """Go on with one of them."""
        ...

    async def leave(self) -> None:
        """End the program; a running workflow is paused and how to resume it is told."""
        ...


class LimitedContext:
    """A host that can do nothing yet and says so; a real one brings what it can."""

    name = "This host"
    reason = ""  # why it cannot, for all refusals

    def refusal(self, what: str) -> UnsupportedError:
        """The error for something that this host cannot do."""
        return UnsupportedError(f"{self.name} cannot {what}{f' ({self.reason})' if self.reason else ''}")

    @property
    def is_streaming(self) -> bool:
        return False

    @property
    def width(self) -> int:
        return 100

    def is_agent(self, name: str) -> bool:
        return False

    async def turn(self, prompt: TurnPrompt) -> None:
        raise self.refusal("ask an agent")

    async def spawn(self, tasks: Sequence[AgentTask]) -> None:
        raise self.refusal("run sub-agents")

    async def run_workflow(self, name: str, arguments: str, attached: str = "") -> None:
        raise self.refusal("run a workflow")

    async def new_conversation(self) -> None:
        raise self.refusal("begin a new conversation")

    async def compact(self, focus: str) -> None:
        raise self.refusal("summarise a conversation")

    async def models(self, provider: str | None, *, refresh: bool = False) -> Sequence[ModelInfo]:
        raise self.refusal("list models")

    async def pick_model(self) -> None:
        raise self.refusal("let you pick a model")

    async def set_model(self, model: str) -> None:
        raise self.refusal("switch the model of a conversation")

    async def pick_provider(self) -> None:
        raise self.refusal("let you pick an agent")

    async def switch_provider(self, name: str) -> None:
        raise self.refusal("switch the agent of a conversation")

    def themes(self) -> Sequence[str]:
        raise self.refusal("show a theme")

    async def pick_theme(self) -> None:
        raise self.refusal("show a theme")

    async def set_theme(self, name: str) -> None:
        raise self.refusal("show a theme")

    def mcp_servers(self) -> McpList:
        raise self.refusal("list MCP servers")

    async def mcp_tools(self) -> Sequence[McpAnswer]:
        raise self.refusal("ask MCP servers for their tools")

    async def set_mcp_server(self, name: str, enabled: bool) -> None:
        raise self.refusal("switch MCP servers")

    async def sessions(self) -> Sequence[SessionSummary]:
        raise self.refusal("list sessions")

    async def open_session(self, id: str) -> None:
        raise self.refusal("open a session")

    async def leave(self) -> None:
        raise self.refusal("be left")
