"""Claude Code's format: agents list `tools` and `disallowedTools`, commands and skills `allowed-tools`."""

from __future__ import annotations

from atomic.entities.model import Entity, EntityKind
from atomic.entities.normalize import Tools, denied_by_permission, normal_names, normal_tools
from atomic.entities.parsers.document import Document, build, file_name, read_head
from atomic.entities.values import Fields, first

_TOOLS = ("tools",)
_ALLOWED = ("allowed-tools", "allowed_tools", "allowedTools")
_DENIED = ("disallowedTools", "disallowed-tools", "disallowed_tools")


def parse(document: Document) -> Entity:
    """The entity in a Markdown file. Raises FormatError."""
    head = read_head(document)
    return build(document, head, file_name(document, ".md"), tools_of(document.kind, head.fields))


def tools_of(kind: EntityKind, fields: Fields) -> Tools:
    """What it may use; each kind has its own word for that, and those of the others are understood, too."""
    words = (*_TOOLS, *_ALLOWED) if kind is EntityKind.AGENT else (*_ALLOWED, *_TOOLS)
    allowed, denied = normal_tools(first(fields, *words))
    more = (*normal_names(first(fields, *_DENIED)), *denied_by_permission(fields.get("permission")))
    return Tools(allowed, list(dict.fromkeys([*denied, *more])))
