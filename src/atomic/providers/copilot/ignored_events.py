"""The events of Copilot that Atomic does not need."""

from __future__ import annotations

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
