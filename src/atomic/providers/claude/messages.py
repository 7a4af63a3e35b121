"""Messages of Claude Code, one JSON object per line, as far as Atomic reads them.

Control requests and their answers are in `control`.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

import msgspec

ENDED = frozenset({"completed", "failed", "stopped", "killed"})  # of a task
CLOSED = frozenset({"completed", "cancelled", "discarded", "refused"})  # of a prompt


class UnreadableError(Exception):
    """A line that is not a readable JSON object."""


class Tokens(msgspec.Struct, frozen=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class Block(msgspec.Struct, frozen=True):
    """A piece of a message: text, thinking, a tool call or its result."""

    type: str = "text"
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}
    tool_use_id: str = ""
    content: Any = None
    is_error: bool | None = None


class Body(msgspec.Struct, frozen=True):
    content: str | list[Block] = ""
    id: str = ""
    usage: Tokens | None = None

    @property
    def blocks(self) -> list[Block]:
        return [Block(text=self.content)] if isinstance(self.content, str) else self.content


class Assistant(msgspec.Struct, frozen=True):
    message: Body
    parent_tool_use_id: str | None = None
    error: str | None = None  # the text then describes the error


class User(msgspec.Struct, frozen=True):
    message: Body
    parent_tool_use_id: str | None = None
    tool_use_result: Any = None  # the result as data


class Delta(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    thinking: str = ""


class PartialBody(msgspec.Struct, frozen=True):
    id: str = ""
    usage: Tokens | None = None


class Partial(msgspec.Struct, frozen=True):
    type: str
    message: PartialBody | None = None
    delta: Delta | None = None
    usage: Tokens | None = None


class StreamEvent(msgspec.Struct, frozen=True):
    event: Partial
    parent_tool_use_id: str | None = None


class ModelUsage(msgspec.Struct, frozen=True, rename="camel"):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cost: float = msgspec.field(default=0.0, name="costUSD")


class Result(msgspec.Struct, frozen=True):
    """The end of one prompt, or of one background task; not yet of the turn."""

    subtype: str
    is_error: bool = False
    num_turns: int = 0
    result: str | None = None
    errors: list[str] | None = None
    stop_reason: str | None = None
    api_error_status: int | None = None
    api_error: str | None = None
    structured_output: Any = None
    origin: Any = None  # None: a prompt; else the cause of the turn
    usage: Tokens | None = None
    spent: dict[str, ModelUsage] | None = msgspec.field(default=None, name="model_usage_since_last_result")
    # Since the program started; older versions have only these.
    total: dict[str, ModelUsage] | None = msgspec.field(default=None, name="modelUsage")
    total_cost: float | None = msgspec.field(default=None, name="total_cost_usd")


class PromptState(msgspec.Struct, frozen=True):
    """The progress of a prompt."""

    command_uuid: str
    state: str


class SessionState(msgspec.Struct, frozen=True):
    """`idle` means that nothing runs, not even a task in the background."""

    state: str


class Init(msgspec.Struct, frozen=True):
    session_id: str


class TaskStarted(msgspec.Struct, frozen=True):
    task_id: str
    tool_use_id: str | None = None
    task_type: str | None = None
    subagent_type: str | None = None
    prompt: str | None = None
    is_backgrounded: bool = False


class TaskEnded(msgspec.Struct, frozen=True):
    """A `task_notification`."""

    task_id: str
    status: str
    summary: str = ""


class Patch(msgspec.Struct, frozen=True):
    status: str | None = None
    error: str | None = None


class TaskUpdated(msgspec.Struct, frozen=True):
    task_id: str
    patch: Patch = Patch()


class Compaction(msgspec.Struct, frozen=True):
    pre_tokens: int | None = None
    post_tokens: int | None = None


class CompactBoundary(msgspec.Struct, frozen=True):
    compact_metadata: Compaction = Compaction()


class ApiRetry(msgspec.Struct, frozen=True):
    """A model call failed and will be retried."""

    retry_delay_ms: float
    error_status: int | None = None
    error: str | None = None


class RateLimitInfo(msgspec.Struct, frozen=True, rename="camel"):
    status: str
    resets_at: float | None = None
    rate_limit_type: str | None = None
    utilization: float | None = None


class RateLimit(msgspec.Struct, frozen=True):
    rate_limit_info: RateLimitInfo


class Remark(msgspec.Struct, frozen=True):
    """A message of the program for the user."""

    content: str = ""
    text: str = ""


class Ignored(msgspec.Struct, frozen=True):
    """A known message that Atomic does not need."""


class Unknown(msgspec.Struct, frozen=True):
    kind: str


Message: TypeAlias = (
    Assistant
    | User
    | StreamEvent
    | Result
    | PromptState
    | SessionState
    | Init
    | TaskStarted
    | TaskEnded
    | TaskUpdated
    | CompactBoundary
    | ApiRetry
    | RateLimit
    | Remark
    | Ignored
    | Unknown
)

_REMARKS = (
    "system/informational",
    "system/notification",
    "system/model_fallback",
    "system/model_refusal_fallback",
    "system/session_writes_lost",
)
_IGNORED = (
    "auth_status",
    "conversation_reset",  # the `init` that follows has the new id
    "keep_alive",
    "prompt_suggestion",
    "tombstone",
    "tool_progress",
    "tool_use_summary",
    "system/background_tasks_changed",
    "system/code_change_published",
    "system/commands_changed",
    "system/control_request_progress",
    "system/file_snapshot",
    "system/files_persisted",
    "system/hook_progress",
    "system/hook_response",
    "system/hook_started",
    "system/local_command_output",  # also comes as the text of the answer
    "system/memory_recall",
    "system/memory_saved",
    "system/model_refusal_no_fallback",  # the result reports it
    "system/permission_check_status",
    "system/permission_denied",  # the tool's result reports it
    "system/plugin_install",
    "system/post_turn_summary",
    "system/session_metadata",
    "system/session_title_changed",
    "system/status",
    "system/stop_hook_summary",
    "system/task_progress",
    "system/task_summary",
    "system/thinking_tokens",
    "system/turn_duration",
    "system/vcs_state_changed",
)
_KNOWN: dict[str, type[Message]] = {
    "assistant": Assistant,
    "user": User,
    "stream_event": StreamEvent,
    "result": Result,
    "command_lifecycle": PromptState,
    "rate_limit_event": RateLimit,
    "system/session_state_changed": SessionState,
    "system/init": Init,
    "system/task_started": TaskStarted,
    "system/task_notification": TaskEnded,
    "system/task_updated": TaskUpdated,
    "system/compact_boundary": CompactBoundary,
    "system/api_retry": ApiRetry,
    **dict.fromkeys(_REMARKS, Remark),
    **dict.fromkeys(_IGNORED, Ignored),
}


class _Kind(msgspec.Struct, frozen=True):
    type: str
    subtype: str | None = None

    def __str__(self) -> str:
        return f"{self.type}/{self.subtype}" if self.type == "system" else self.type


# JavaScript escapes only lone surrogates; it writes complete characters as they are.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def without_lone_surrogates(line: bytes) -> bytes:
    """Replace lone surrogates, from output cut within a character.

    Raise UnreadableError.
    """
    if not _SURROGATE.search(line):
        return line
    try:
        return json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{_begin(line)}: {error}") from error


def kind_of(line: bytes) -> str:
    """Return the kind of message in a line. Raise UnreadableError."""
    try:
        return str(msgspec.json.decode(line, type=_Kind))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{_begin(line)}: {error}") from error


def read(kind: str, line: bytes) -> Message:
    """Decode a message; an unknown kind or shape becomes Unknown.

    Raise UnreadableError.
    """
    known = _KNOWN.get(kind)
    if known is None:
        return Unknown(kind)
    try:
        return msgspec.json.decode(line, type=known)
    except msgspec.ValidationError as error:
        return Unknown(f"{kind} of an unknown shape: {error}")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{_begin(line)}: {error}") from error


def _begin(line: bytes) -> str:
    text = line[:80].decode("utf-8", "replace").strip()
    return f'"{text}…"' if len(line) > 80 else f'"{text}"'
