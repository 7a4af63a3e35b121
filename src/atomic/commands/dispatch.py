"""Run a typed command, or the agents that a text names."""

from __future__ import annotations

from atomic.commands.context import AgentTask, CommandContext
from atomic.commands.parse import CommandCall, parse, parse_mentions

_NO_TASK = "No task was given: follow your instructions."


async def dispatch(text: str, context: CommandContext, *, attached: str = "") -> bool:
    """Run the slash command or the agents that a text names.

    False if it names none and is for the agent.

    `attached` is further text (standard input). It was not typed, so it cannot name
    agents. Raise CommandNotFoundError with the nearest name.
    """
    call = parse(text)
    if call is not None:
        command = context.commands.require(call.name)
        await command.run(CommandCall(call.name, call.args, attached), context)
        return True
    return await call_agents(text, context, attached=attached)


async def call_agents(text: str, context: CommandContext, *, attached: str = "") -> bool:
    """Run the sub-agents that a text mentions; return False if it mentions none."""
    mentions = parse_mentions(text, context.is_agent)
    if not mentions:
        return False
    tasks: list[AgentTask] = []
    for mention in mentions:
        task = "\n\n".join(part for part in (mention.task, attached) if part)
        tasks.append(agent_task(mention.agent, task))
    await context.spawn(tasks)
    return True


def agent_task(agent: str, task: str) -> AgentTask:
    """Return a task for an agent.

    Without words the agent follows its own instructions.
    """
    return AgentTask(agent, task or _NO_TASK)
