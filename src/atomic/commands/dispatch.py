"""Carry out what was typed, if it is for Atomic."""

from __future__ import annotations

from atomic.commands.context import AgentTask, CommandContext
from atomic.commands.parse import CommandCall, parse, parse_mentions

_NO_TASK = "No task was given: do what your instructions say."


async def dispatch(text: str, context: CommandContext, *, attached: str = "") -> bool:
    """Run the slash command or the agents that a text names; False if it names none and is for the agent.

    `attached` is more text that goes along (standard input). It was not typed: it cannot name agents.
    Raises CommandNotFoundError with the nearest name.
    """
    call = parse(text)
    if call is not None:
        command = context.commands.require(call.name)
        await command.run(CommandCall(call.name, call.args, attached), context)
        return True
    mentions = parse_mentions(text, context.is_agent)
    if mentions:
        await context.spawn([agent_task(mention.agent, _with(mention.task, attached)) for mention in mentions])
    return bool(mentions)


def agent_task(agent: str, task: str) -> AgentTask:
    """A task for an agent; one without words is sent to follow its own instructions."""
    return AgentTask(agent, task or _NO_TASK)


def _with(text: str, attached: str) -> str:
    return "\n\n".join(part for part in (text, attached) if part)
