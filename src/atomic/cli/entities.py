"""`atomic entities`: the commands, skills and agents of every tool, and which file each comes from."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode, did_you_mean
from atomic.base.terminal import harmless, one_line
from atomic.base.text import cut, table
from atomic.cli.streams import json_line, put, screen_width, tell
from atomic.commands import short_hint
from atomic.entities import Entity, EntityKind, EntityRegistry
from atomic.wiring import Project

NAME_COLUMNS = 32
ROOM_FOR_HINTS = 110  # columns; with fewer the descriptions need the place
_ORDER = (EntityKind.SKILL, EntityKind.COMMAND, EntityKind.AGENT)  # of two with one name, what `/name` runs


class EntityRow(msgspec.Struct, frozen=True):
    """An entity as `--json` tells it."""

    kind: str
    name: str
    description: str
    aliases: Sequence[str]
    tools: Sequence[str] | None
    denied_tools: Sequence[str]
    model: str | None
    original_model: str | None
    argument_hint: str
    hidden: bool
    provider: str
    location: str
    path: str
    hides: Sequence[str]  # the files that define it too, the nearest first
    prompt: str | msgspec.UnsetType = msgspec.UNSET  # what an agent would be told; only of one that is shown


class DiagnosticRow(msgspec.Struct, frozen=True):
    """A file that could not be read."""

    path: str
    line: int
    reason: str


def list_entities(arguments: Arguments) -> int:
    """Print all entities, or those of one kind."""
    kind = arguments.value("--kind")
    as_json = arguments.has("--json")
    registry = Project().entities
    entities = [entity for each in _kinds(kind) for entity in registry.all(each)]
    if as_json:
        put(json_line({"entities": [_row(one, registry) for one in entities], "diagnostics": _diagnostics(registry)}))
        return ExitCode.DONE
    put(_listing(entities, registry) or "No commands, skills or agents found.\n")
    for diagnostic in registry.diagnostics:
        tell(str(diagnostic))
    return ExitCode.DONE


def show_entity(arguments: Arguments) -> int:
    """Print what is defined under a name, in each kind that has it."""
    name, *rest = arguments.words
    text = " ".join(rest)
    kind = arguments.value("--kind")
    as_json = arguments.has("--json")
    registry = Project().entities
    name = name.lstrip("/@")
    found = [entity for each in _kinds(kind) if (entity := registry.find(each, name)) is not None]
    if not found:
        raise UsageError(_not_found(name, kind, registry))
    if as_json:
        put(json_line({"entities": [_shown_row(entity, text, registry) for entity in found]}))
    else:
        put("\n\n".join(_shown(entity, text, registry) for entity in found) + "\n")
    return ExitCode.DONE


def _kinds(kind: str | None) -> Sequence[EntityKind]:
    return _ORDER if kind is None else (EntityKind(kind),)


def _not_found(name: str, kind: str | None, registry: EntityRegistry) -> str:
    known = [word for each in _kinds(kind) for entity in registry.all(each) for word in (entity.name, *entity.aliases)]
    hint = did_you_mean(name, known, otherwise="atomic entities list shows them")
    return f'{"Entity" if kind is None else EntityKind(kind).label} not found: "{name}"{hint}'


# for programs ---------------------------------------------------------------------------------------------------


def _row(entity: Entity, registry: EntityRegistry) -> EntityRow:
    source = entity.source
    return EntityRow(
        entity.kind, entity.name, entity.description, entity.aliases, entity.tools, entity.denied_tools, entity.model,
        entity.original_model, entity.argument_hint, entity.hidden, source.provider, source.location, str(source.path),
        [str(hidden.source.path) for hidden in registry.hides(entity)],
    )  # fmt: skip


def _shown_row(entity: Entity, arguments: str, registry: EntityRegistry) -> EntityRow:
    return msgspec.structs.replace(_row(entity, registry), prompt=_prompt(entity, arguments))


def _diagnostics(registry: EntityRegistry) -> list[DiagnosticRow]:
    return [DiagnosticRow(str(one.path), one.line, one.reason) for one in registry.diagnostics]


# for people -----------------------------------------------------------------------------------------------------


def _listing(entities: Sequence[Entity], registry: EntityRegistry) -> str:
    """A table for each kind, with the same columns in all."""
    width = screen_width()
    cells = [_cells(entity, registry, with_hint=width is None or width >= ROOM_FOR_HINTS) for entity in entities]
    rows = iter(table(cells, None if width is None else width - 2))
    sections: dict[EntityKind, list[str]] = {}
    for entity in entities:
        sections.setdefault(entity.kind, []).append(next(rows))
    return "\n".join(_section(kind, lines) for kind, lines in sections.items())


def _section(kind: EntityKind, lines: Sequence[str]) -> str:
    return f"{kind.label}s ({len(lines)})\n" + "".join(f"  {line}\n" for line in lines)


def _cells(entity: Entity, registry: EntityRegistry, *, with_hint: bool) -> Sequence[str]:
    hides = len(registry.hides(entity))
    notes = [entity.source.location, f"hides {hides}" if hides else "", "hidden" if entity.hidden else ""]
    where = f"{entity.source.provider}, {', '.join(note for note in notes if note)}"
    name = cut(one_line(entity.name), NAME_COLUMNS)
    hint = (short_hint(one_line(entity.argument_hint)),) if with_hint else ()
    return name, *hint, where, one_line(entity.description)


def _shown(entity: Entity, arguments: str, registry: EntityRegistry) -> str:
    facts = [
        ("file", _where(entity)),
        *(("hides", _where(hidden)) for hidden in registry.hides(entity)),
        ("aliases", ", ".join(entity.aliases)),
        ("arguments", entity.argument_hint),
        ("model", _model(entity)),
        ("tools", "all" if entity.tools is None else ", ".join(entity.tools) or "none"),
        ("without", ", ".join(entity.denied_tools)),
        ("run by", _runner(entity, registry)),
        ("hidden", "it is not offered, only found by its name" if entity.hidden else ""),
    ]
    head = [f"{one_line(entity.name)} ({entity.kind})", one_line(entity.description)]
    lines = table((f"{name}:", one_line(fact)) for name, fact in facts if fact)
    title = "system prompt" if entity.kind is EntityKind.AGENT else "expands to"
    return "\n".join([*head, *(f"  {line}" for line in lines), f"  {title}:", "", harmless(_prompt(entity, arguments))])


def _runner(entity: Entity, registry: EntityRegistry) -> str:
    if entity.agent is None:
        return "a session of its own" if entity.subtask else ""
    known = registry.find(EntityKind.AGENT, entity.agent) is not None
    alone = ", as a sub-agent" if entity.subtask and known else ""
    return f"{entity.agent}{alone}" if known else f"{entity.agent}, which no file defines: by whom you talk to"


def _where(entity: Entity) -> str:
    return f"{entity.source.path} ({entity.source.provider}, {entity.source.location})"


def _model(entity: Entity) -> str:
    original = entity.original_model
    told = f" (the file says {original})" if original and original != entity.model else ""
    return f"{entity.model}{told}" if entity.model else ""


def _prompt(entity: Entity, arguments: str) -> str:
    """What an agent would be told; an agent's own prompt takes no arguments."""
    return entity.prompt if entity.kind is EntityKind.AGENT else entity.expand(arguments)
