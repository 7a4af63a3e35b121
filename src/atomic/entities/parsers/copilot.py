"""Copilot's format: `x.prompt.md` is a command, `x.agent.md` (or `x.md`) an agent; tools come in sets like `search`."""

from __future__ import annotations

from atomic.entities.model import Entity, EntityKind
from atomic.entities.parsers.claude import tools_of
from atomic.entities.parsers.document import Document, build, file_name, read_head

_SUFFIXES = {
    EntityKind.COMMAND: (".prompt.md", ".md"),
    EntityKind.SKILL: (),
    EntityKind.AGENT: (".agent.md", ".md"),
}


def parse(document: Document) -> Entity:
    """The entity in a Markdown file. Raises FormatError."""
    head = read_head(document)
    return build(document, head, file_name(document, *_SUFFIXES[document.kind]), tools_of(document.kind, head.fields))
