"""Slash commands: parse, registry, hints and built-ins.

A command sees only its `CommandContext`.

Public modules: `dispatch`, `from_workflows`.
"""

from atomic.commands.builtin import builtin_commands
from atomic.commands.context import (
    AgentTask,
    CommandContext,
    LimitedContext,
    SessionSummary,
    TurnPrompt,
)
from atomic.commands.dispatch import dispatch
from atomic.commands.from_entities import agent_prompt, entity_commands
from atomic.commands.from_workflows import workflow_command, workflow_commands
from atomic.commands.hints import Hint, HintState, complete, hint_state, short_hint
from atomic.commands.parse import CommandCall, Mention, parse, parse_mentions
from atomic.commands.registry import (
    BusyError,
    Category,
    Command,
    CommandClashError,
    CommandError,
    CommandNotFoundError,
    CommandRegistry,
    CommandUsageError,
    Shadowed,
    UnsupportedError,
)

__all__ = [
    "AgentTask",
    "BusyError",
    "Category",
    "Command",
    "CommandCall",
    "CommandClashError",
    "CommandContext",
    "CommandError",
    "CommandNotFoundError",
    "CommandRegistry",
    "CommandUsageError",
    "Hint",
    "HintState",
    "LimitedContext",
    "Mention",
    "SessionSummary",
    "Shadowed",
    "TurnPrompt",
    "UnsupportedError",
    "agent_prompt",
    "builtin_commands",
    "complete",
    "dispatch",
    "entity_commands",
    "hint_state",
    "parse",
    "parse_mentions",
    "short_hint",
    "workflow_command",
    "workflow_commands",
]
