"""Define the interface of agents: providers, sessions, their options and capabilities."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from os import PathLike
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from atomic.providers.events import AgentEvent
from atomic.questions import Question

ValueT = TypeVar("ValueT")

Ask = Callable[[Sequence[Question]], Awaitable[Sequence[Sequence[str]]]]
"""Asks the user an agent's questions and returns the chosen labels, one list per question."""


class AgentLike(Protocol):
    """A sub-agent that the session may call by name, for example an agent entity."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def prompt(self) -> str: ...

    @property
    def tools(self) -> Sequence[str] | None:
        """Return the names of its tools; None means all tools of the session."""
        ...

    @property
    def model(self) -> str | None: ...


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A sub-agent as plain data."""

    name: str
    description: str
    prompt: str
    tools: Sequence[str] | None = None
    model: str | None = None


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server: a program (`command`) or an address (`url`)."""

    name: str
    command: Sequence[str] = ()
    env: Mapping[str, str] = {}
    url: str | None = None
    headers: Mapping[str, str] = {}
    # The address uses HTTP+SSE, the transport before streamable HTTP.
    sse: bool = False
    # It comes from the user's configuration: it is left out if it fails, or if
    # `SessionOptions.tools` does not name it.
    optional: bool = False
    tools: Sequence[str] = ()  # known tools of an optional server
    # It replaces a server of the same name that the agent would start by itself.
    takes_place: bool = False

    def __repr__(self) -> str:
        """Return only the name: the other fields may hold secrets."""
        return f"McpServer({self.name!r})"


class CustomTool(msgspec.Struct, frozen=True, kw_only=True):
    """A Python function that an agent may call.

    `tool()` makes one from a typed function.
    """

    name: str
    description: str
    schema: Mapping[str, Any]  # JSON Schema of the arguments, an object
    # If it raises, the agent receives the text of the error.
    run: Callable[[Mapping[str, Any]], Awaitable[str]]
    # It only collects its input, so a replay calls it again with the recorded input.
    replayed: bool = False


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a session.

    Opening refuses an option that a provider does not support.
    """

    cwd: str | PathLike[str] | None = None  # None: the current folder
    system_prompt: str | None = None  # in addition to the agent's own
    model: str | None = None
    tools: Sequence[str] | None = None  # None: all
    denied_tools: Sequence[str] = ()
    agents: Sequence[AgentLike] = ()
    mcp_servers: Sequence[McpServer] = ()
    disabled_mcp_servers: Sequence[str] = ()  # even if the agent would load them itself
    custom_tools: Sequence[CustomTool | Callable[..., Any]] = ()  # tools or typed functions
    ask: Ask | None = None  # None: the agent gets no question tool
    max_turns: int | None = None  # calls of the model per prompt
    resume: str | None = None
    fork: bool = False  # with `resume`: continue a copy with a new id
    # Words before the command of the agent's program, which start it in a workspace.
    launcher: Sequence[str] = ()
    env: Mapping[str, str] | None = None  # overrides variables of the agent's program
    record: str | PathLike[str] | None = None
    trusted: bool = False  # hooks, plugins and MCP servers of the project may run
    watch: Callable[[AgentEvent], None] | None = None  # receives every event, also during `ask_for`


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The features that a provider supports; check them before calling."""

    resume: bool = False
    fork: bool = False
    # Take a message in the middle of a turn. Without it, interrupt and send the message
    # as the next prompt.
    steer: bool = False
    subagents: bool = False  # `SessionOptions.agents`
    custom_tools: bool = False
    mcp_servers: bool = False
    mcp_switching: bool = False  # `disabled_mcp_servers`
    questions: bool = False
    multi_select: bool = False
    system_prompt: bool = False
    tool_selection: bool = False  # `tools` and `denied_tools`
    max_turns: bool = False
    models: bool = False  # `models` and `set_model`
    thinking: bool = False
    usage: bool = False
    cost: bool = False
    context_meter: bool = False
    compact: bool = False
    structured: Literal["native", "tool", "text"] = "text"  # how `ask_for` works


ALL_FEATURES = Capabilities(
    resume=True,
    fork=True,
    subagents=True,
    custom_tools=True,
    mcp_servers=True,
    mcp_switching=True,
    questions=True,
    multi_select=True,
    system_prompt=True,
    tool_selection=True,
    max_turns=True,
    models=True,
    thinking=True,
    usage=True,
    cost=True,
    context_meter=True,
    compact=True,
    structured="native",
)
"""All features that an agent supports today."""


class Health(msgspec.Struct, frozen=True):
    """The result of `AgentProvider.check`; `remedy` explains how to fix a problem.

    `login` is the variable or the file that shows a login, "" if the agent does not
    reveal it.
    """

    ok: bool
    version: str = ""
    program: str = ""
    remedy: str = ""
    login: str = ""


class ModelInfo(msgspec.Struct, frozen=True):
    """A model that a provider offers; `context` is 0 if its size is unknown."""

    id: str
    name: str = ""
    context: int = 0


class ContextUsage(msgspec.Struct, frozen=True):
    """The tokens in the context, its size and its model; 0 and "" mean unknown."""

    used: int = 0
    limit: int = 0
    model: str = ""


class AgentSession(Protocol):
    """A conversation with an agent."""

    @property
    def id(self) -> str:
        """Return the provider's id of the session.

        `SessionOptions.resume` accepts it.
        """
        ...

    def send(self, prompt: str) -> AsyncIterator[AgentEvent]:
        """Run one turn and yield its events; TurnEnded is always the last one.

        Closing the iterator interrupts the turn.
        """
        ...

    async def interrupt(self) -> None:
        """Stop the turn within 2 s; the session stays usable.

        Do nothing without a turn.
        """
        ...

    async def context(self) -> ContextUsage: ...

    async def compact(self, focus: str = "") -> None:
        """Summarise the context. Raise UnsupportedError."""
        ...

    async def set_model(self, id: str) -> None:
        """Use another model from the next turn on. Raise UnsupportedError."""
        ...

    async def ask_for(self, type: type[ValueT], prompt: str) -> ValueT:
        """Run one turn and return its answer as a value of `type`.

        Raise AnswerError.
        """
        ...


class AgentProvider(Protocol):
    """An adapter for a program that runs agents."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def open(self, options: SessionOptions) -> AbstractAsyncContextManager[AgentSession]:
        """Open a session; leaving the context ends it and its processes.

        That holds for cancellation too. Raise ProviderError.
        """
        ...

    async def models(self) -> Sequence[ModelInfo]: ...

    async def check(self) -> Health:
        """Report whether the agent is installed and logged in, and its version.

        A missing program or login is reported, never raised.
        """
        ...
