"""The events of a Copilot session, as far as Atomic reads them.

Only needed fields are read: a newer Copilot may add or change others. Numbers are
floats, because Copilot writes 7 and 7.0 alike. `ignored_events` lists known kinds that
are not needed; a kind in no list is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

_REPORTED_OTHERWISE = """
abort agent.interrupted assistant.idle assistant.turn_start assistant.turn_retry tool.execution_partial_result
subagent.configured subagent.selected subagent.deselected session.compaction_start session.model_change
session.task_complete permission.completed external_tool.completed elicitation.completed user_input.requested
user_input.completed skill.invoked_ref skill.context_delivered skill.context_delivered_ref
"""

_PROGRESS = """
assistant.streaming_delta assistant.tool_call_delta assistant.server_tool_progress assistant.intent
model.call_start model.call_finished model.call_final_result model.turn_started model.turn_ended model.turn_failed
model.turn_retry model.model_call_started model.model_call_success model.model_call_failure model.message
model.response model.log model.telemetry model.tool_execution model.messages_snapshot
"""

_SESSION_STATE = """
session.start session.resume session.shutdown session.title_changed session.skills_loaded session.extensions_loaded
session.mcp_servers_loaded session.mcp_server_status_changed session.mcp_server_tools_loaded
session.mcp_server_removed session.mcp_server_needs_reconnect session.tools_updated session.custom_agents_updated
session.managed_settings_resolved session.managed_settings_enforced session.managed_plugin_progress
session.mode_changed session.mode_notice_delivered session.permissions_changed session.permission_recovery
session.session_limits_changed session.context_changed session.context_cleared session.snapshot_rewind
session.workspace_file_changed session.plan_changed session.handoff session.usage_checkpoint
session.quota_observation session.background_tasks_changed session.indexed_search session.binary_asset
session.remote_steerable_changed session.auto_mode_resolved session.auto_tier_recommendation
session.auto_tier_switch_failed session.model_deselected session.completion_receipt session.custom_notification
session.schedule_created session.schedule_cancelled session.schedule_rearmed session.autopilot_stopped
session.autopilot_objective_changed commands.changed capabilities.changed pending_messages.modified
mcp.tools.list_changed mcp.resources.list_changed mcp.prompts.list_changed tool_search.activated system.message
sandbox.decision hook.start hook.end hook.progress human_response.recorded permission.carriedForward
permission.messageAuthorization permission.messageAuthorizationRead permission.messageAuthorizationDegraded
permission.assentDetected permission.contextualAuthorization
"""

IGNORED = frozenset((_REPORTED_OTHERWISE + _PROGRESS + _SESSION_STATE).split())


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    """The data of an event."""


class Prompted(_Data, frozen=True):
    """A prompt was started: the turn's or a sub-agent's."""

    content: str = ""
    message_id: str = ""


class MessageBegun(_Data, frozen=True):
    """A message of the agent started."""

    message_id: str


class TextAdded(_Data, frozen=True):
    """A piece of a message."""

    message_id: str
    delta_content: str


class MessageDone(_Data, frozen=True):
    """A message is complete."""

    message_id: str
    content: str = ""
    tool_requests: list[Any] | None = None


class ThoughtAdded(_Data, frozen=True):
    """A piece of the agent's thinking."""

    reasoning_id: str
    delta_content: str


class ThoughtDone(_Data, frozen=True):
    """A thought is complete."""

    reasoning_id: str
    content: str = ""


class StepDone(_Data, frozen=True):
    """A model call and its tool calls have ended."""


class Used(_Data, frozen=True):
    """The usage of one model call."""

    model: str = ""
    input_tokens: float | None = None
    output_tokens: float | None = None
    cache_read_tokens: float | None = None
    finish_reason: str | None = None


class Quota(_Data, frozen=True):
    """The rest of an account's quota."""

    remaining_percentage: float = 100
    reset_date: str | None = None


class CallFailed(_Data, frozen=True):
    """A model call failed; it may be retried."""

    status_code: float | None = None
    error_message: str | None = None
    error_type: str | None = None
    quota_snapshots: dict[str, Quota] | None = None


class ToolBegun(_Data, frozen=True):
    """A tool was called."""

    tool_call_id: str
    tool_name: str
    arguments: Any = None


class ToolSaid(_Data, frozen=True):
    """A running command printed something."""

    tool_call_id: str
    text: str


class ToolProgressed(_Data, frozen=True):
    """A running tool reported progress."""

    tool_call_id: str
    progress_message: str


class ToolResult(_Data, frozen=True):
    content: str = ""


class ToolFault(_Data, frozen=True):
    message: str = ""


class ToolDone(_Data, frozen=True):
    """A tool ended."""

    tool_call_id: str
    success: bool
    result: ToolResult | None = None
    error: ToolFault | None = None


class AgentBegun(_Data, frozen=True):
    """A sub-agent started; the event carries its id."""

    tool_call_id: str
    agent_name: str
    parent_id: str | None = None


class AgentDone(_Data, frozen=True):
    """A sub-agent ended."""

    cancelled: bool | None = None


class AgentFailed(_Data, frozen=True):
    """A sub-agent failed."""

    error: str = ""


class NotificationKind(_Data, frozen=True):
    type: str
    agent_id: str | None = None


class Notified(_Data, frozen=True):
    """The agent is notified of something in the background."""

    kind: NotificationKind


class SkillInvoked(_Data, frozen=True):
    """The agent loaded a skill."""

    name: str


class TodosChanged(_Data, frozen=True):
    """The to-do list changed; it must be requested."""


class CompactionDone(_Data, frozen=True):
    """The context was summarised, or could not be."""

    success: bool
    error: str | None = None
    pre_compaction_tokens: float | None = None
    post_compaction_tokens: float | None = None
    compaction_tokens_used: Used | None = None  # reported only here


class Truncated(_Data, frozen=True):
    """The oldest part of the context was removed."""

    pre_truncation_tokens_in_messages: float
    post_truncation_tokens_in_messages: float


class ContextMeasured(_Data, frozen=True):
    """How full the context is."""

    current_tokens: float
    token_limit: float


class Informed(_Data, frozen=True):
    """A remark for the timeline."""

    message: str
    info_type: str = ""


class Warned(_Data, frozen=True):
    """A warning for the timeline."""

    message: str


class PermissionSubject(_Data, frozen=True):
    """A tool's command or URL."""

    full_command_text: str = ""
    url: str = ""


class PermissionRequested(_Data, frozen=True):
    """A tool waits for permission."""

    request_id: str
    permission_request: PermissionSubject = PermissionSubject()
    resolved_by_hook: bool | None = None


class CustomToolRequested(_Data, frozen=True):
    """A custom tool is called."""

    request_id: str
    tool_name: str
    arguments: Any = None


class FormRequested(_Data, frozen=True):
    """The user is to fill in a form."""

    request_id: str
    message: str = ""
    requested_schema: dict[str, Any] | None = None
    mode: str | None = None


class Failed(_Data, frozen=True):
    """The prompt failed."""

    message: str
    error_type: str = ""
    originating_message_id: str | None = None


class Idle(_Data, frozen=True):
    """Nothing of the session runs, not even in the background."""

    aborted: bool | None = None


class Unreadable(_Data, frozen=True):
    """An event of a known kind with unreadable data."""

    problem: str


class Unknown(_Data, frozen=True):
    """An event of an unknown kind."""


class Lost(_Data, frozen=True):
    """The server has ended."""

    reason: str


Data: TypeAlias = _Data


class Event(msgspec.Struct, frozen=True):
    """One event of a session."""

    kind: str
    data: Data
    agent: str | None = None  # the sub-agent that it belongs to


READ: Mapping[str, type[Data]] = {
    "user.message": Prompted,
    "assistant.message_start": MessageBegun,
    "assistant.message_delta": TextAdded,
    "assistant.message": MessageDone,
    "assistant.reasoning_delta": ThoughtAdded,
    "assistant.reasoning": ThoughtDone,
    "assistant.turn_end": StepDone,
    "assistant.usage": Used,
    "model.call_failure": CallFailed,
    "tool.execution_start": ToolBegun,
    "tool.shell_output": ToolSaid,
    "tool.execution_progress": ToolProgressed,
    "tool.execution_complete": ToolDone,
    "subagent.started": AgentBegun,
    "subagent.completed": AgentDone,
    "subagent.failed": AgentFailed,
    "system.notification": Notified,
    "skill.invoked": SkillInvoked,
    "session.todos_changed": TodosChanged,
    "session.compaction_complete": CompactionDone,
    "session.truncation": Truncated,
    "session.usage_info": ContextMeasured,
    "session.info": Informed,
    "session.warning": Warned,
    "permission.requested": PermissionRequested,
    "external_tool.requested": CustomToolRequested,
    "elicitation.requested": FormRequested,
    "session.error": Failed,
    "session.idle": Idle,
}


def read(raw: Mapping[str, Any]) -> Event | None:
    """Decode an event; None if it is ignored."""
    kind = str(raw.get("type"))
    agent = raw.get("agentId")
    if kind in IGNORED:
        return None
    return Event(kind, _data(kind, raw.get("data")), str(agent) if agent else None)


def _data(kind: str, data: Any) -> Data:
    if kind not in READ:
        return Unknown()
    try:
        return msgspec.convert({} if data is None else data, READ[kind])
    except msgspec.ValidationError as error:
        return Unreadable(str(error))
