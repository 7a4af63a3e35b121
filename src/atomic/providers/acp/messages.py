"""What an agent says over the protocol, as far as it matters here.

Only the fields that are used are read: agents add others, and newer ones other kinds of update. `loose.read` reads
them: a field with a default may be missing, null, or of a shape that is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

VERSION = 1  # of the protocol


class _Said(msgspec.Struct, frozen=True, rename="camel"):
    """Whatever an agent says."""


# what it can do, and how it is entered --------------------------------------------------------------------------


class McpKinds(_Said, frozen=True):
    """Which MCP servers at an address it takes; programs it takes always."""

    http: bool = False
    sse: bool = False


class SessionKinds(_Said, frozen=True):
    """What it can do with a session besides; an object stands for yes."""

    fork: dict[str, Any] | None = None
    resume: dict[str, Any] | None = None


class Capabilities(_Said, frozen=True):
    """What it can do."""

    load_session: bool = False
    mcp_capabilities: McpKinds = McpKinds()
    session_capabilities: SessionKinds = SessionKinds()


class LoginVariable(_Said, frozen=True):
    name: str
    optional: bool = False


class Login(_Said, frozen=True):
    """A way to log in."""

    id: str
    type: str | None = None
    vars: tuple[LoginVariable, ...] = ()


class Greeting(_Said, frozen=True):
    """The answer to `initialize`."""

    protocol_version: int
    agent_capabilities: Capabilities = Capabilities()
    auth_methods: tuple[Login, ...] = ()


# a session ------------------------------------------------------------------------------------------------------


class Choice(_Said, frozen=True):
    """A value of an option; or a group of them, which has no value of its own."""

    name: str
    value: str = ""
    options: tuple[Choice, ...] = ()


class ConfigOption(_Said, frozen=True):
    """An option of a session."""

    id: str
    type: str
    category: Any = None
    current_value: Any = None
    options: tuple[Choice, ...] = ()


class Opened(_Said, frozen=True):
    """A session that goes on."""

    config_options: tuple[ConfigOption, ...] = ()


class Begun(Opened, frozen=True, kw_only=True):
    """A session that begins."""

    session_id: str


class Tokens(_Said, frozen=True):
    """What was used: of a turn, or of the session so far."""

    total_tokens: int
    input_tokens: int
    output_tokens: int
    thought_tokens: int | None = None
    cached_read_tokens: int | None = None


class TurnDone(_Said, frozen=True):
    """The answer to a prompt."""

    stop_reason: Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]
    usage: Tokens | None = None


# updates --------------------------------------------------------------------------------------------------------


class _Update(_Said, frozen=True):
    """What it tells of a session."""


class Block(_Said, frozen=True):
    """A piece of content; only text is of use."""

    type: str
    text: str | None = None


class _Chunk(_Update, frozen=True):
    content: Block
    message_id: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class MessageChunk(_Chunk, frozen=True):
    """A piece of a message of the agent."""


class ThoughtChunk(_Chunk, frozen=True):
    """A piece of what it thinks."""


class ToolContent(_Said, frozen=True):
    """What a tool shows: content, a change of a file, a terminal."""

    type: str
    content: Block | None = None


class ToolCall(_Update, frozen=True):
    """A tool call begins, or there is news of it."""

    tool_call_id: str
    title: str | None = None
    kind: (
        Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"] | None
    ) = None
    status: Literal["pending", "in_progress", "completed", "failed"] | None = None
    content: tuple[ToolContent, ...] | None = None
    raw_input: Any = None
    raw_output: Any = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class PlanEntry(_Said, frozen=True):
    content: str
    status: Literal["pending", "in_progress", "completed"]


class Plan(_Update, frozen=True):
    """The whole plan."""

    entries: tuple[PlanEntry, ...]


class AnyPlan(_Said, frozen=True):
    """A plan as entries, as text or as a file; only entries are of use."""

    type: str
    entries: tuple[PlanEntry, ...] | None = None


class PlanUpdate(_Update, frozen=True):
    """One of several plans."""

    plan: AnyPlan


class PlanRemoved(_Update, frozen=True):
    """A plan is no more."""


class Cost(_Said, frozen=True):
    amount: float
    currency: str


class UsageUpdate(_Update, frozen=True):
    """How full the context is, and what the session has cost."""

    used: int
    size: int
    cost: Cost | None = None


class Command(_Said, frozen=True):
    name: str


class CommandsUpdate(_Update, frozen=True):
    """The agent's own commands."""

    available_commands: tuple[Command, ...]


class OptionsUpdate(_Update, frozen=True):
    """The options are others now; also the answer, where one was set."""

    config_options: tuple[ConfigOption, ...]


Update: TypeAlias = _Update

UPDATES: Mapping[str, type[Update]] = {
    "agent_message_chunk": MessageChunk,
    "agent_thought_chunk": ThoughtChunk,
    "available_commands_update": CommandsUpdate,
    "config_option_update": OptionsUpdate,
    "plan": Plan,
    "plan_removed": PlanRemoved,
    "plan_update": PlanUpdate,
    "tool_call": ToolCall,
    "tool_call_update": ToolCall,
    "usage_update": UsageUpdate,
}
PASSED_OVER = frozenset({"current_mode_update", "session_info_update", "user_message_chunk"})


# what it asks for -----------------------------------------------------------------------------------------------


class PermissionOption(_Said, frozen=True):
    option_id: str
    kind: str


class _Subject(_Said, frozen=True):
    tool_call_id: str


class PermissionRequest(_Said, frozen=True):
    """May a tool run?"""

    tool_call: _Subject
    options: tuple[PermissionOption, ...]


class FormChoice(_Said, frozen=True):
    const: str
    title: str
    description: str | None = None


class FormItems(_Said, frozen=True):
    """What several of may be chosen."""

    enum: tuple[str, ...] | None = None
    any_of: tuple[FormChoice, ...] | None = None


class FormField(_Said, frozen=True):
    """A field of a form, of whatever type."""

    type: str
    title: str | None = None
    description: str | None = None
    default: Any = None
    enum: tuple[str, ...] | None = None
    one_of: tuple[FormChoice, ...] | None = None
    items: FormItems | None = None


class FormSchema(_Said, frozen=True):
    properties: dict[str, FormField] | None = None
    required: tuple[str, ...] | None = None


class Elicitation(_Said, frozen=True):
    """Somebody is to fill in a form, or to visit a page."""

    message: str
    mode: str
    requested_schema: FormSchema | None = None
