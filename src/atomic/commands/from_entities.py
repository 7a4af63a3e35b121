"""Commands made from the files of every tool: skills, commands and agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atomic.commands.columns import one_line
from atomic.commands.context import CommandContext, TurnPrompt
from atomic.commands.dispatch import agent_task
from atomic.commands.parse import CommandCall, is_callable
from atomic.commands.registry import Category, Command, Run

if TYPE_CHECKING:
    from atomic.entities import Entity, EntityRegistry

_KINDS = (Category.SKILL, Category.COMMAND, Category.AGENT)


def entity_commands(entities: EntityRegistry) -> list[Command]:
    """A command for each skill, command and agent that wins in its name."""
    return [
        entity_command(entity, entities) for kind in _KINDS for entity in entities.all(kind) if is_callable(entity.name)
    ]


def entity_command(entity: Entity, entities: EntityRegistry) -> Command:
    """The command that runs an entity: an agent as a sub-agent, the others as a turn of the conversation."""
    kind = Category(entity.kind)
    return Command(
        entity.name,
        entity.description,
        kind,
        _spawning(entity) if kind is Category.AGENT else _asking(entity),
        tuple(alias for alias in entity.aliases if is_callable(alias) and entities.find(kind, alias) is entity),
        one_line(entity.argument_hint),
        entity.hidden,
        _origin(entity),
        tuple(map(_origin, entities.hides(entity))),
    )


def agent_prompt(entity: Entity, task: str) -> TurnPrompt:
    """A task as one turn of an agent, for a host that has no sub-agents or needs only one."""
    return _prompt(entity, task, system_prompt=entity.prompt)


def _asking(entity: Entity) -> Run:
    async def run(call: CommandCall, context: CommandContext) -> None:
        await context.turn(_prompt(entity, entity.expand(call.args)))

    return run


def _prompt(entity: Entity, text: str, *, system_prompt: str | None = None) -> TurnPrompt:
    return TurnPrompt(
        text=text,
        model=None if entity.model == "inherit" else entity.model,
        original_model=None if entity.model is None else entity.original_model,
        provider=entity.source.provider,
        tools=entity.tools,
        denied_tools=entity.denied_tools,
        system_prompt=system_prompt,
    )


def _spawning(entity: Entity) -> Run:
    async def run(call: CommandCall, context: CommandContext) -> None:
        await context.spawn([agent_task(entity.name, call.args)])

    return run


def _origin(entity: Entity) -> str:
    """Where it is defined, for people."""
    source = entity.source
    return f"{source.path} ({source.provider}, {source.location})"
