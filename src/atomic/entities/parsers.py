"""Parse Markdown files of Atomic, Claude Code and Copilot into entities. Pure.

Claude's agents list `tools` and `disallowedTools`, its commands and skills
`allowed-tools`. Atomic uses the same fields. Copilot's commands are `x.prompt.md`, its
agents `x.agent.md` or `x.md`; its tools come in sets like `search`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from atomic.base.text import cut, fold
from atomic.entities import frontmatter
from atomic.entities.frontmatter import Fields, Value, first, is_false, is_true, text
from atomic.entities.model import Body, Entity, EntityKind, FormatError, Source
from atomic.entities.normalize import Tools, denied_by_permission, normal_model, normal_names, normal_tools, split_names

_MAX_NAME = 64
_NAME = re.compile(rf"[^\s/\\]{{1,{_MAX_NAME}}}")
_HINTS = ("argument-hint", "argument_hint", "argumentHint")
_INVOCABLE = ("user-invocable", "user-invokable", "user_invocable", "userInvocable")
_TOOLS = ("tools",)
_ALLOWED = ("allowed-tools", "allowed_tools", "allowedTools")
_DENIED = ("disallowedTools", "disallowed-tools", "disallowed_tools")
_COPILOT_SUFFIXES = {
    EntityKind.COMMAND: (".prompt.md", ".md"),
    EntityKind.SKILL: (),
    EntityKind.AGENT: (".agent.md", ".md"),
}
# Some of them control a terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Document(msgspec.Struct, frozen=True):
    """A Markdown file to parse.

    relative: its path below the folder of its kind: `git/commit.md`, `commit/SKILL.md`
    text: its start, with at least the longest front matter that is allowed
    complete: whether `text` is the whole file
    body: reads the prompt later; None: the prompt is in the text
    prefix: what its name begins with, such as the name of its plugin
    """

    kind: EntityKind
    source: Source
    relative: str
    text: str
    complete: bool = True
    body: Body | None = None
    prefix: str = ""


class Head(msgspec.Struct, frozen=True):
    """The front matter of a document and the text after it."""

    fields: Fields
    body: str


def parse_markdown(document: Document) -> Entity:
    """Return the entity in a file of Atomic or Claude Code. Raises FormatError."""
    return make_from_head(document, read_head(document), (".md",))


def parse_copilot(document: Document) -> Entity:
    """Return the entity in a file of Copilot. Raises FormatError."""
    return make_from_head(document, read_head(document), _COPILOT_SUFFIXES[document.kind])


def read_head(document: Document) -> Head:
    """Split the text and read its fields.

    Raises FormatError if an agent or a skill has no front matter, and above a limit.
    """
    parts = frontmatter.split(document.text)
    if parts.block is not None:
        return Head(frontmatter.read(parts.block), parts.body)
    if parts.unclosed and not document.complete:
        raise FormatError("the front matter is longer than 64 KB, or has no closing ---")
    if document.kind is not EntityKind.COMMAND:
        problem = "the front matter has no closing ---" if parts.unclosed else "there is no front matter"
        raise FormatError(f"{problem}: {document.kind.article} needs one")
    return Head({}, parts.body)


def make_from_head(document: Document, head: Head, suffixes: Iterable[str]) -> Entity:
    """Make the entity of a document. Raises FormatError if it has no usable name."""
    fallback = _name_from_path(document, suffixes)
    name = " ".join(clean(text(head.fields.get("name"))).split())
    title = ""
    if not is_name(name):
        # A name that cannot be typed becomes an alias.
        title = name
        name = fallback
    if not is_name(name):
        raise FormatError(
            f'"{cut(name, _MAX_NAME)}" cannot be a name: blanks, slashes and more than {_MAX_NAME} characters'
        )
    prompt = head.body.strip() if document.body is None else document.body
    return make_entity(document.kind, document.prefix + name, head.fields, prompt, document.source, title=title)


def make_entity(
    kind: EntityKind, name: str, fields: Fields, prompt: str | Body, source: Source, *, title: str = ""
) -> Entity:
    """Make an entity of its fields, in any of the formats."""
    model, original = normal_model(fields.get("model"))
    tools = _read_tools(kind, fields)
    agent = None if kind is EntityKind.AGENT else clean(text(fields.get("agent"))).strip() or None
    return Entity(
        kind,
        name,
        clean(text(fields.get("description"))).strip(),
        _read_aliases(name, title, fields.get("aliases")),
        prompt,
        tools.allowed,
        tools.denied,
        model,
        original,
        _read_hint(first(fields, *_HINTS)),
        is_true(fields.get("hidden")) or is_false(first(fields, *_INVOCABLE)),
        source,
        agent,
        # Claude calls it `context: fork`.
        is_true(fields.get("subtask")) or text(fields.get("context")).strip().lower() == "fork",
    )


def is_name(name: str) -> bool:
    """Return whether a user can type the name after a slash."""
    return bool(_NAME.fullmatch(name)) and name.isprintable() and name not in (".", "..")


def clean(value: str) -> str:
    """Replace control characters except newlines and tabs."""
    return value if value.isprintable() else _CONTROL.sub(" ", value)


def _name_from_path(document: Document, suffixes: Iterable[str]) -> str:
    """Return a skill's folder, a command's folders and file as `a:b`, or an agent's
    file.
    """
    if document.kind is EntityKind.SKILL:
        return document.relative.rpartition("/")[0].rpartition("/")[2]
    stem = document.relative
    for suffix in suffixes:
        if stem.endswith(suffix):
            stem = stem.removesuffix(suffix)
            break
    return stem.replace("/", ":") if document.kind is EntityKind.COMMAND else stem.rpartition("/")[2]


def _read_tools(kind: EntityKind, fields: Fields) -> Tools:
    """Return the tools.

    Each kind has its own key for them and accepts the others' keys.
    """
    keys = (*_TOOLS, *_ALLOWED) if kind is EntityKind.AGENT else (*_ALLOWED, *_TOOLS)
    allowed, denied = normal_tools(first(fields, *keys))
    more = (*normal_names(first(fields, *_DENIED)), *denied_by_permission(fields.get("permission")))
    return Tools(allowed, list(dict.fromkeys([*denied, *more])))


def _read_aliases(name: str, title: str, value: Value | None) -> list[str]:
    """Return the title and the aliases, without repetitions and without the name."""
    if not title and not value:
        return []
    listed: Iterable[Any] = split_names(value) if isinstance(value, str) else value or ()
    by_folded: dict[str, str] = {}
    for item in (title, *listed):
        if isinstance(item, str):
            alias = " ".join(clean(item).split())
            if alias:
                by_folded.setdefault(fold(alias), alias)
    by_folded.pop(fold(name), None)
    return list(by_folded.values())


def _read_hint(value: Value | None) -> str:
    words = value if isinstance(value, str) else " ".join(item for item in value or () if isinstance(item, str))
    return " ".join(clean(words).split())
