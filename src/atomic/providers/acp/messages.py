"""Messages of the protocol, as far as Atomic reads them.

Only needed fields are read: agents add others, and newer ones other kinds of updates.
`read` reads them: a field with a default may be missing, null, or of an unknown
shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args, get_origin

import msgspec

VERSION = 1  # of the protocol
FAILURE = ("jetbrains", "air", "sessionFailure")
StructT = TypeVar("StructT", bound=msgspec.Struct)


class _Message(msgspec.Struct, frozen=True, rename="camel"):
    """A message of an agent."""


# Capabilities and logins


class McpKinds(_Message, frozen=True):
    """The supported MCP servers with a url; programs are always supported."""

    http: bool = False
    sse: bool = False


class SessionKinds(_Message, frozen=True):
    """Optional features of sessions; an object means yes."""

    fork: dict[str, Any] | None = None
    resume: dict[str, Any] | None = None


class Capabilities(_Message, frozen=True):
    """The capabilities of an agent."""

    load_session: bool = False
    mcp_capabilities: McpKinds = McpKinds()
    session_capabilities: SessionKinds = SessionKinds()


class LoginVariable(_Message, frozen=True):
    name: str
    optional: bool = False


class Login(_Message, frozen=True):
    """A login method."""

    id: str
    type: str | None = None
    vars: tuple[LoginVariable, ...] = ()


class Greeting(_Message, frozen=True):
    """The answer to `initialize`."""

    protocol_version: int
    agent_capabilities: Capabilities = Capabilities()
    auth_methods: tuple[Login, ...] = ()


# Sessions


class Choice(_Message, frozen=True):
    """A value of an option, or a group of values."""

    name: str
    value: str = ""
    options: tuple[Choice, ...] = ()


class ConfigOption(_Message, frozen=True):
    """An option of a session."""

    id: str
    type: str
    category: Any = None
    current_value: Any = None
    options: tuple[Choice, ...] = ()


class Opened(_Message, frozen=True):
    """The answer to a resumed session."""

    config_options: tuple[ConfigOption, ...] = ()


class Begun(Opened, frozen=True, kw_only=True):
    """The answer to a new session."""

    session_id: str


class Tokens(_Message, frozen=True):
    """The tokens of a turn, or of the session so far."""

    total_tokens: int
    input_tokens: int
    output_tokens: int
    thought_tokens: int | None = None
    cached_read_tokens: int | None = None


class TurnDone(_Message, frozen=True):
    """The answer to a prompt."""

    stop_reason: Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]
    usage: Tokens | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @property
    def failure(self) -> str:
        """Return why the turn failed; "" if it did not.

        Codex reports the failures of a model this way, and only to a client that asks
        for it. To others they are the text of a turn that ended as it should.
        """
        record = as_object(self.meta)
        for key in FAILURE:
            record = as_object(record.get(key))
        return text_at(record, "title") if text_at(record, "severity") == "error" else ""


# Updates


class _Update(_Message, frozen=True):
    """An update of a session."""


class Block(_Message, frozen=True):
    """A piece of content; only text is used."""

    type: str
    text: str | None = None


class _Chunk(_Update, frozen=True):
    content: Block
    message_id: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class MessageChunk(_Chunk, frozen=True):
    """A piece of a message of the agent."""


class ThoughtChunk(_Chunk, frozen=True):
    """A piece of the agent's thinking."""


class ToolContent(_Message, frozen=True):
    """Output of a tool: content, a change of a file, a terminal."""

    type: str
    content: Block | None = None


class Location(_Message, frozen=True):
    """A file that a tool uses."""

    path: str


class ToolCall(_Update, frozen=True):
    """A new tool call, or an update of one."""

    tool_call_id: str
    title: str | None = None
    kind: (
        Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"] | None
    ) = None
    status: Literal["pending", "in_progress", "completed", "failed"] | None = None
    content: tuple[ToolContent, ...] | None = None
    raw_input: Any = None
    raw_output: Any = None
    locations: tuple[Location, ...] = ()
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class PlanEntry(_Message, frozen=True):
    content: str
    status: Literal["pending", "in_progress", "completed"]


class Plan(_Update, frozen=True):
    """The whole plan."""

    entries: tuple[PlanEntry, ...]


class AnyPlan(_Message, frozen=True):
    """A plan as entries, text or file; only entries are used."""

    type: str
    entries: tuple[PlanEntry, ...] | None = None


class PlanUpdate(_Update, frozen=True):
    """One of several plans."""

    plan: AnyPlan


class PlanRemoved(_Update, frozen=True):
    """A plan was removed."""


class Cost(_Message, frozen=True):
    amount: float
    currency: str


class UsageUpdate(_Update, frozen=True):
    """The size of the context and the cost of the session."""

    used: int
    size: int
    cost: Cost | None = None


class OptionsUpdate(_Update, frozen=True):
    """The changed options; also the answer to setting one."""

    config_options: tuple[ConfigOption, ...]


Update: TypeAlias = _Update

UPDATES: Mapping[str, type[Update]] = {
    "agent_message_chunk": MessageChunk,
    "agent_thought_chunk": ThoughtChunk,
    "config_option_update": OptionsUpdate,
    "plan": Plan,
    "plan_removed": PlanRemoved,
    "plan_update": PlanUpdate,
    "tool_call": ToolCall,
    "tool_call_update": ToolCall,
    "usage_update": UsageUpdate,
}
IGNORED = frozenset({"available_commands_update", "current_mode_update", "session_info_update", "user_message_chunk"})


# Requests


class PermissionOption(_Message, frozen=True):
    option_id: str
    kind: str


class _Subject(_Message, frozen=True):
    tool_call_id: str


class PermissionRequest(_Message, frozen=True):
    """A request for permission to run a tool."""

    tool_call: _Subject
    options: tuple[PermissionOption, ...]


class Elicitation(_Message, frozen=True):
    """A request to fill in a form, or to visit a page."""

    message: str
    mode: str
    requested_schema: dict[str, Any] | None = None


def as_object(data: Any) -> dict[str, Any]:
    """Return the object, an empty one for anything else."""
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def text_at(data: Any, *path: str) -> str:
    """Return the text at a path through objects, else ""."""
    for key in path:
        data = as_object(data).get(key)
    return data if isinstance(data, str) else ""


def read(data: Any, kind: type[StructT]) -> StructT:
    """Read a message; ignore optional fields and list items of an unknown shape.

    Raise msgspec.ValidationError if a required field cannot be read.
    """
    try:
        return msgspec.convert(data, kind, strict=False)
    except msgspec.ValidationError:
        if not isinstance(data, dict):
            raise
        return msgspec.convert(_readable(as_object(data), kind), kind, strict=False)


def _readable(data: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the readable fields of an object."""
    kept: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name in data:
            value = _readable_part(data[field.encode_name], field.type)
            if field.required or _fits(value, field.type):
                kept[field.encode_name] = value
    return kept


def _readable_part(value: Any, kind: Any) -> Any:
    for one in get_args(kind) if isinstance(kind, UnionType) else (kind,):
        if isinstance(value, dict) and isinstance(one, type) and issubclass(one, msgspec.Struct):
            return _readable(as_object(value), one)
        if isinstance(value, list) and get_origin(one) is tuple:
            item = get_args(one)[0]
            parts = [_readable_part(part, item) for part in cast("list[Any]", value)]
            return [part for part in parts if _fits(part, item)]
    return cast("Any", value)


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return False
    return True
