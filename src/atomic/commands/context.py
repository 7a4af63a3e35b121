"""The interface between commands and their host: the screen, `atomic -p`, a test.

A command uses nothing else, so it behaves the same in each host. A host raises
UnsupportedError, with one sentence, for operations that it does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from atomic.base.lazy_types import deferred
from atomic.commands.registry import CommandRegistry, UnsupportedError
from atomic.providers import AgentLike, ModelInfo

if TYPE_CHECKING:
    from atomic.mcp import McpAnswer, McpList
else:
    McpAnswer = deferred("atomic.mcp", "McpAnswer")
    McpList = deferred("atomic.mcp", "McpList")


class TurnPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the conversation, with the options of an entity."""

    text: str
    model: str | None = None  # None: the model of the conversation
    original_model: str | None = None  # as written in its file, for the provider of that file
    provider: str = ""  # the provider that the file was written for
    tools: Sequence[str] | None = None  # None: all
    denied_tools: Sequence[str] = ()
    system_prompt: str | None = None  # of the agent that does it
    subtask: bool = False  # in its own session, so that its reading does not fill the conversation
    agents: Sequence[AgentLike] = ()  # named in its text; the turn can call them


class AgentTask(msgspec.Struct, frozen=True):
    """The task of a sub-agent."""

    agent: str
    task: str


class SessionSummary(msgspec.Struct, frozen=True):
    """A run or a conversation that can be reopened."""

    id: str
    title: str
    status: str
    updated: str


class CommandContext(Protocol):
    """A host of commands.

    Its methods raise AtomicError, and UnsupportedError if the host cannot do it.
    """

    @property
    def commands(self) -> CommandRegistry:
        """Return the commands of this prompt."""
        ...

    @property
    def is_streaming(self) -> bool:
        """Return whether the agent is answering now."""
        ...

    @property
    def width(self) -> int:
        """Return the number of columns of a line."""
        ...

    def is_agent(self, name: str) -> bool:
        """Return whether an agent has that name, even if a command has it too."""
        ...

    def show(self, text: str) -> None:
        """Show a text. It may be untrusted: control characters are shown, not obeyed."""

    async def turn(self, prompt: TurnPrompt) -> None:
        """Run one turn of the conversation and wait for it."""

    async def spawn(self, tasks: Sequence[AgentTask]) -> None:
        """Run sub-agents at the same time, wait for all, and show the answer of each."""

    async def run_workflow(self, name: str, arguments: str, attached: str = "") -> None:
        """Run a workflow and wait for it.

        One without a graph gives its prompt to the conversation.

        `arguments` are flags and the prompt; `attached` follows the prompt, and nothing
        in it is a flag.
        """

    async def new_conversation(self) -> None:
        """Start a new conversation."""

    async def compact(self, focus: str) -> None:
        """Summarise the context; the transcript stays."""

    async def models(self, provider: str | None, *, refresh: bool = False) -> Sequence[ModelInfo]:
        """Return the models of a provider, by default of the current one.

        `refresh` asks it again.
        """
        ...

    async def pick_model(self) -> None:
        """Let the user choose a model."""

    async def set_model(self, model: str) -> None:
        """Use another model from now on."""

    async def pick_provider(self) -> None:
        """Let the user choose a provider."""

    async def switch_provider(self, name: str) -> None:
        """Switch to another provider and give it a summary of the conversation."""

    def themes(self) -> Sequence[str]:
        """Return the names of the themes."""
        ...

    async def pick_theme(self) -> None:
        """Let the user choose a theme, with a preview."""

    async def set_theme(self, name: str) -> None:
        """Use a theme from now on."""

    def mcp_servers(self) -> McpList:
        """Return the MCP servers of all tools."""
        ...

    async def mcp_tools(self) -> Sequence[McpAnswer]:
        """List the tools of the servers that may be used: enabled ones, and a project's
        only if it is trusted.
        """
        ...

    async def set_mcp_server(self, name: str, enabled: bool) -> None:
        """Switch a server on or off."""

    async def sessions(self) -> Sequence[SessionSummary]:
        """Return runs and conversations, newest first."""
        ...

    async def open_session(self, id: str) -> None:
        """Open one of them."""

    async def run_branch_verb(self, verb: str, words: Sequence[str]) -> None:
        """Do what `atomic VERB` does with the branch of a run: `diff`, `accept`, `undo`
        or `discard`.

        The first word may be the id of a run; by default it is the last one.
        """

    async def leave(self) -> None:
        """End the program, pause a running workflow and print how to resume it."""


class LimitedContext:
    """A host that refuses everything.

    Real hosts override the methods that they support.
    """

    name = "This host"
    reason = ""  # the reason in all refusals

    def refusal(self, what: str) -> UnsupportedError:
        """Return the error for something that this host cannot do."""
        reason = f" ({self.reason})" if self.reason else ""
        return UnsupportedError(f"{self.name} cannot {what}{reason}")

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

    async def run_branch_verb(self, verb: str, words: Sequence[str]) -> None:
        raise self.refusal(f"{verb} the branch of a run")

    async def leave(self) -> None:
        raise self.refusal("be left")
