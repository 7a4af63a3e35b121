"""The border between Atomic and the agents: what a provider is, what a session takes and can do."""

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
"""Puts the questions of an agent to a person; the labels that were chosen, for each question."""


class AgentLike(Protocol):
    """A sub-agent that the session may call by name; an agent entity is one."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def prompt(self) -> str: ...

    @property
    def tools(self) -> Sequence[str] | None:
        """None: all that the session has."""
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
    """A server of tools: a program (`command`) or an address (`url`)."""

    name: str
    command: Sequence[str] = ()
    env: Mapping[str, str] = {}
    url: str | None = None
    headers: Mapping[str, str] = {}
    sse: bool = False  # at the address is HTTP with events, which came before streamable HTTP
    optional: bool = False  # of the user's configuration: one that `tools` does not name, or that fails, is left out
    tools: Sequence[str] = ()  # of an optional one, those that it is known to have
    takes_place: bool = False  # of one of that name which the agent would start by itself

    def __repr__(self) -> str:
        """The name alone: all the rest may hold secrets."""
        return f"McpServer({self.name!r})"


class CustomTool(msgspec.Struct, frozen=True, kw_only=True):
    """A Python function that an agent may call; `tool()` makes one of a typed function."""

    name: str
    description: str
    schema: Mapping[str, Any]  # JSON Schema of the arguments, an object
    run: Callable[[Mapping[str, Any]], Awaitable[str]]  # raises: the agent is told the text of the error
    replayed: bool = False  # it does nothing but take what the agent gives: a replay gives it that again


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is to be like. What a provider cannot do is refused when it opens, never ignored."""

    cwd: str | PathLike[str] | None = None  # None: where Atomic runs
    system_prompt: str | None = None  # in addition to the agent's own
    model: str | None = None
    tools: Sequence[str] | None = None  # only these; None: all
    denied_tools: Sequence[str] = ()
    agents: Sequence[AgentLike] = ()
    mcp_servers: Sequence[McpServer] = ()
    disabled_mcp_servers: Sequence[str] = ()  # not these, also where the agent would load them by itself
    custom_tools: Sequence[CustomTool | Callable[..., Any]] = ()  # a typed function will do
    ask: Ask | None = None  # None: the agent is not offered the question tool
    max_turns: int | None = None  # of the model, within one prompt
    resume: str | None = None
    fork: bool = False  # with `resume`: a copy, under a new id
    env: Mapping[str, str] | None = None  # for the agent's program, over what it would get
    record: str | PathLike[str] | None = None
    trusted: bool = False  # the project's own hooks, plugins and MCP servers may run
    watch: Callable[[AgentEvent], None] | None = None  # hears every event of every turn, also those of `ask_for`


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider can do; a caller asks before it calls."""

    resume: bool = False
    fork: bool = False
    steer: bool = False  # take a word in the middle of a turn; who has one interrupts, and says it in the next
    subagents: bool = False  # `SessionOptions.agents`
    custom_tools: bool = False
    mcp_servers: bool = False
    mcp_switching: bool = False  # `disabled_mcp_servers`
    questions: bool = False
    multi_select: bool = False
    system_prompt: bool = False
    tool_selection: bool = False  # `tools` and `denied_tools`
    max_turns: bool = False
    models: bool = False  # a list of them, and `set_model`
    thinking: bool = False
    usage: bool = False
    cost: bool = False
    context_meter: bool = False
    compact: bool = False
    structured: Literal["native", "tool", "text"] = "text"  # how `ask_for` gets its answer


class Health(msgspec.Struct, frozen=True):
    """Whether a provider can be used here; `remedy` is what to do if not."""

    ok: bool
    version: str = ""
    program: str = ""
    remedy: str = ""


class ModelInfo(msgspec.Struct, frozen=True):
    """A model that a provider offers; `context` 0 means that nobody says."""

    id: str
    name: str = ""
    context: int = 0


class ContextUsage(msgspec.Struct, frozen=True):
    """How full the context is, in tokens, and the model it belongs to; 0 and "" mean that it is not known."""

    used: int = 0
    limit: int = 0
    model: str = ""


class AgentSession(Protocol):
    """A conversation with an agent."""

    @property
    def id(self) -> str:
        """The provider's own id, known from the opening on; `SessionOptions.resume` takes it."""
        ...

    def send(self, prompt: str) -> AsyncIterator[AgentEvent]:
        """One turn; the last event, and only the last, is TurnEnded. Closing the iterator interrupts the turn."""
        ...

    async def interrupt(self) -> None:
        """Stop the turn within 2 s; the session can go on. Without a turn it does nothing."""
        ...

    async def context(self) -> ContextUsage: ...

    async def compact(self, focus: str = "") -> None:
        """Summarise the context. Raises UnsupportedError."""
        ...

    async def set_model(self, id: str) -> None:
        """Use another model from the next turn on. Raises UnsupportedError."""
        ...

    async def ask_for(self, type: type[ValueT], prompt: str) -> ValueT:
        """One turn whose answer is a value of that type. Raises AnswerError."""
        ...


class AgentProvider(Protocol):
    """A program that runs agents."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def open(self, options: SessionOptions) -> AbstractAsyncContextManager[AgentSession]:
        """Open a session; leaving the context ends it and its processes, on cancellation too. Raises ProviderError."""
        ...

    async def models(self) -> Sequence[ModelInfo]: ...

    async def check(self) -> Health:
        """Installed? Logged in? Which version? It never raises for what is missing, it says so."""
        ...
