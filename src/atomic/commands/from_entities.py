"""Commands made from entities: the skills, commands and agents of every tool."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from atomic.base.lazy_types import deferred
from atomic.base.text import collapse_spaces
from atomic.commands.context import AgentTask, CommandContext, TurnPrompt
from atomic.commands.dispatch import agent_task
from atomic.commands.parse import CommandCall, is_callable
from atomic.commands.registry import Category, Command
from atomic.entities import KNOWN_TOOLS
from atomic.providers import AgentSpec

if TYPE_CHECKING:
    from atomic.entities import Entity, EntityRegistry
else:
    Entity = deferred("atomic.entities", "Entity")
    EntityRegistry = deferred("atomic.entities", "EntityRegistry")

_KINDS = (Category.SKILL, Category.COMMAND, Category.AGENT)
_NAMED = re.compile(r"`@?([^`\s]+)`|(?<!\S)@([^\s,:;.!?)]+)")


def entity_commands(entities: EntityRegistry) -> list[Command]:
    """Return a command for each skill, command and agent that wins for its name."""
    return [
        entity_command(entity, entities) for kind in _KINDS for entity in entities.all(kind) if is_callable(entity.name)
    ]


def entity_command(entity: Entity, entities: EntityRegistry) -> Command:
    """Return the command that runs an entity: an agent as a sub-agent, others as a turn
    of the conversation.
    """
    kind = Category(entity.kind)

    async def run(call: CommandCall, context: CommandContext) -> None:
        if kind is Category.AGENT:
            await context.spawn([agent_task(entity.name, call.text)])
            return
        text = entity.expand(call.text)
        agent = entities.find(Category.AGENT, entity.agent) if entity.agent else None
        if agent is not None and entity.subtask:
            await context.spawn([AgentTask(agent.name, text)])
        else:
            await context.turn(_turn(entity, agent, text, named_agents(entity, entities)))

    return Command(
        entity.name,
        entity.description,
        kind,
        run,
        tuple(alias for alias in entity.aliases if is_callable(alias) and entities.find(kind, alias) is entity),
        collapse_spaces(entity.argument_hint),
        entity.hidden,
        _origin(entity),
        tuple(map(_origin, entities.hides(entity))),
    )


def agent_prompt(entity: Entity, task: str) -> TurnPrompt:
    """Return a task as one turn of an agent, for a host without sub-agents or with only
    one.
    """
    return _prompt(entity, task, system_prompt=entity.prompt)


def _turn(entity: Entity, agent: Entity | None, text: str, agents: Sequence[AgentSpec]) -> TurnPrompt:
    """Return the turn of an entity.

    Its own options win over its agent's; an undefined agent is the tool's own.
    """
    if agent is None:
        return _prompt(entity, text, agents=agents)
    who = _prompt(agent, text, system_prompt=agent.prompt, agents=agents)
    return msgspec.structs.replace(
        who if entity.model is None else _prompt(entity, text, system_prompt=agent.prompt, agents=agents),
        tools=agent.tools if entity.tools is None else entity.tools,
        denied_tools=[*agent.denied_tools, *entity.denied_tools],
    )


def named_agents(entity: Entity, entities: EntityRegistry) -> tuple[AgentSpec, ...]:
    """Return the agents that a file names as `name` or @name.

    Its reader can call them.
    """
    words = {match[1] or match[2] for match in _NAMED.finditer(entity.prompt)}
    found = {agent.name: agent for word in sorted(words) if (agent := entities.find(Category.AGENT, word))}
    return tuple(_spec(agent) for agent in found.values())


def _spec(agent: Entity) -> AgentSpec:
    """Return the agent for a provider.

    Providers take allowed tools only, so denied tools are subtracted from all.
    """
    allowed = KNOWN_TOOLS if agent.tools is None and agent.denied_tools else agent.tools
    tools = None if allowed is None else [tool for tool in allowed if tool not in agent.denied_tools]
    return AgentSpec(
        name=agent.name, description=agent.description, prompt=agent.prompt, tools=tools, model=agent.model
    )


def _prompt(
    entity: Entity, text: str, *, system_prompt: str | None = None, agents: Sequence[AgentSpec] = ()
) -> TurnPrompt:
    return TurnPrompt(
        text=text,
        model=None if entity.model == "inherit" else entity.model,
        original_model=None if entity.model is None else entity.original_model,
        provider=entity.source.provider,
        tools=entity.tools,
        denied_tools=entity.denied_tools,
        system_prompt=system_prompt,
        subtask=entity.subtask,
        agents=agents,
    )


def _origin(entity: Entity) -> str:
    """Return where an entity is defined, as users read it."""
    source = entity.source
    return f"{source.path} ({source.provider}, {source.location})"
