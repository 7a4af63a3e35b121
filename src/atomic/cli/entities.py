"""`atomic entities`: the commands, skills and agents of every tool, and the files that
define them.
"""

from __future__ import annotations

from collections.abc import Sequence

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode, did_you_mean
from atomic.base.terminal import harmless, one_line
from atomic.base.text import cut, table
from atomic.cli.streams import json_line, put, screen_width, tell
from atomic.commands import short_hint
from atomic.entities import Entity, EntityKind, EntityRegistry
from atomic.wiring import Project

NAME_COLUMNS = 32
NO_ENTITIES = (
    "None found. Write one: .claude/commands/NAME.md, .claude/skills/NAME/SKILL.md or .claude/agents/NAME.md.\n"
)
MIN_COLUMNS_FOR_HINTS = 110  # in a narrower list, descriptions need the room
_ORDER = (EntityKind.SKILL, EntityKind.COMMAND, EntityKind.AGENT)  # of two with one name, `/name` runs the first


def list_entities(arguments: Arguments) -> int:
    """Print all entities, or the entities of one kind."""
    registry = Project().entities
    entities = [entity for kind in _kinds(arguments) for entity in registry.all(kind)]
    if arguments.has("--json"):
        diagnostics = [{"path": str(one.path), "line": one.line, "reason": one.reason} for one in registry.diagnostics]
        put(json_line({"entities": [_as_json(one, registry) for one in entities], "diagnostics": diagnostics}))
        return ExitCode.DONE
    put(_listing(entities, registry) or NO_ENTITIES)
    for diagnostic in registry.diagnostics:
        tell(str(diagnostic))
    return ExitCode.DONE


def show_entity(arguments: Arguments) -> int:
    """Print the entity of a name, once for each kind that has it, expanded with the
    given arguments.
    """
    name, *rest = arguments.words
    name = name.lstrip("/@")
    text = " ".join(rest)
    registry = Project().entities
    kinds = _kinds(arguments)
    found = [entity for kind in kinds if (entity := registry.find(kind, name)) is not None]
    if not found:
        known = [word for kind in kinds for entity in registry.all(kind) for word in (entity.name, *entity.aliases)]
        hint = did_you_mean(name, known, otherwise="atomic entities list shows them")
        raise UsageError(f'{kinds[0].label if len(kinds) == 1 else "Entity"} not found: "{name}"{hint}')
    if arguments.has("--json"):
        entities = [{**_as_json(entity, registry), "prompt": _prompt(entity, text)} for entity in found]
        put(json_line({"entities": entities}))
    else:
        put("\n\n".join(_details(entity, text, registry) for entity in found) + "\n")
    return ExitCode.DONE


def _kinds(arguments: Arguments) -> Sequence[EntityKind]:
    kind = arguments.value("--kind")
    return _ORDER if kind is None else (EntityKind(kind),)


def _as_json(entity: Entity, registry: EntityRegistry) -> dict[str, object]:
    return {
        "kind": entity.kind,
        "name": entity.name,
        "description": entity.description,
        "aliases": entity.aliases,
        "tools": entity.tools,
        "denied_tools": entity.denied_tools,
        "model": entity.model,
        "original_model": entity.original_model,
        "argument_hint": entity.argument_hint,
        "hidden": entity.hidden,
        "provider": entity.source.provider,
        "location": entity.source.location,
        "path": str(entity.source.path),
        "hides": [str(hidden.source.path) for hidden in registry.hides(entity)],  # the nearest file first
    }


def _listing(entities: Sequence[Entity], registry: EntityRegistry) -> str:
    """Return a table for each kind, with the same columns in all."""
    width = screen_width()
    rows: list[list[str]] = []
    for entity in entities:
        origin = f"{entity.source.provider}, {entity.source.location}"
        hides = len(registry.hides(entity))
        if hides:
            origin += f", hides {hides}"
        if entity.hidden:
            origin += ", hidden"
        row = [cut(one_line(entity.name), NAME_COLUMNS), origin, one_line(entity.description)]
        if width is None or width >= MIN_COLUMNS_FOR_HINTS:
            row.insert(1, short_hint(one_line(entity.argument_hint)))
        rows.append(row)
    lines_by_kind: dict[EntityKind, list[str]] = {}
    for entity, line in zip(entities, table(rows, None if width is None else width - 2), strict=True):
        lines_by_kind.setdefault(entity.kind, []).append(f"  {line}\n")
    return "\n".join(f"{kind.label}s ({len(lines)})\n{''.join(lines)}" for kind, lines in lines_by_kind.items())


def _details(entity: Entity, arguments: str, registry: EntityRegistry) -> str:
    model = entity.model or ""
    if entity.model and entity.original_model and entity.original_model != entity.model:
        model = f"{entity.model} (written as {entity.original_model})"
    facts = [
        ("file", _origin(entity)),
        *(("hides", _origin(hidden)) for hidden in registry.hides(entity)),
        ("aliases", ", ".join(entity.aliases)),
        ("arguments", entity.argument_hint),
        ("model", model),
        ("tools", "all" if entity.tools is None else ", ".join(entity.tools) or "none"),
        ("without", ", ".join(entity.denied_tools)),
        ("run by", _runner(entity, registry)),
        ("hidden", "it is not offered, only found by its name" if entity.hidden else ""),
    ]
    lines = [f"{one_line(entity.name)} ({entity.kind})", one_line(entity.description)]
    lines += [f"  {line}" for line in table((f"{name}:", one_line(fact)) for name, fact in facts if fact)]
    title = "system prompt" if entity.kind is EntityKind.AGENT else "expands to"
    return "\n".join([*lines, f"  {title}:", "", harmless(_prompt(entity, arguments))])


def _runner(entity: Entity, registry: EntityRegistry) -> str:
    """Describe who runs an entity; empty for the agent of the conversation."""
    if entity.agent is None:
        return "a session of its own" if entity.subtask else ""
    if registry.find(EntityKind.AGENT, entity.agent) is None:
        return f"{entity.agent}, which no file defines: the agent of the conversation runs it"
    return f"{entity.agent}, as a sub-agent" if entity.subtask else entity.agent


def _origin(entity: Entity) -> str:
    return f"{entity.source.path} ({entity.source.provider}, {entity.source.location})"


def _prompt(entity: Entity, arguments: str) -> str:
    """Return the text for an agent; an agent's own prompt takes no arguments."""
    return entity.prompt if entity.kind is EntityKind.AGENT else entity.expand(arguments)
