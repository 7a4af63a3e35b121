"""What the four formats have in common: a Markdown file with front matter that becomes an entity."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from atomic.entities import frontmatter
from atomic.entities.errors import FormatError
from atomic.entities.model import Body, Entity, EntityKind, Source, fold
from atomic.entities.normalize import Tools, normal_model, split_names
from atomic.entities.values import Fields, Value, first, is_false, is_true, text

NAME_LIMIT = 64
_NAME = re.compile(rf"[^\s/\\]{{1,{NAME_LIMIT}}}")
_HINTS = ("argument-hint", "argument_hint", "argumentHint")
_INVOCABLE = ("user-invocable", "user-invokable", "user_invocable", "userInvocable")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # a terminal would obey some of them


class Document(msgspec.Struct, frozen=True):
    """A Markdown file as a parser gets it."""

    kind: EntityKind
    source: Source
    relative: str  # its path below the folder of its kind: `git/commit.md`, `commit/SKILL.md`
    text: str  # the head of it, at least all the front matter that is allowed
    complete: bool = True  # False: the file goes on
    body: Body | None = None  # reads the prompt later; None: it is in the text


class Head(msgspec.Struct, frozen=True):
    """The front matter of a document and the text after it."""

    fields: Fields
    body: str


def read_head(document: Document) -> Head:
    """Part the text. Raises FormatError where an agent or a skill has no front matter, and where a limit is broken."""
    parts = frontmatter.split(document.text)
    if parts.block is None and parts.unclosed and not document.complete:
        raise FormatError("the front matter is longer than 64 KB, or has no closing ---")
    if parts.block is None and document.kind is not EntityKind.COMMAND:
        why = "the front matter has no closing ---" if parts.unclosed else "there is no front matter"
        raise FormatError(f"{why}: {document.kind.article} needs one")
    return Head({} if parts.block is None else frontmatter.read(parts.block), parts.body)


def build(document: Document, head: Head, fallback: str, tools: Tools) -> Entity:
    """The entity of a document. Raises FormatError where nothing in it can be its name."""
    name, title = choose_name(text(head.fields.get("name")), fallback)
    prompt = head.body.strip() if document.body is None else document.body
    return make(document.kind, name, head.fields, prompt, tools, document.source, title)


def make(
    kind: EntityKind, name: str, fields: Fields, prompt: str | Body, tools: Tools, source: Source, title: str = ""
) -> Entity:
    """The entity of some fields, of whichever format."""
    model, original = normal_model(fields.get("model"))
    agent = None if kind is EntityKind.AGENT else clean(text(fields.get("agent"))).strip() or None
    return Entity(
        kind,
        name,
        clean(text(fields.get("description"))).strip(),
        _aliases(name, title, fields.get("aliases")),
        prompt,
        tools.allowed,
        tools.denied,
        model,
        original,
        _hint(first(fields, *_HINTS)),
        is_true(fields.get("hidden")) or is_false(first(fields, *_INVOCABLE)),
        source,
        agent,
        is_true(fields.get("subtask")) or text(fields.get("context")).strip().lower() == "fork",  # Claude's word for it
    )


def choose_name(given: str, fallback: str) -> tuple[str, str]:
    """The name, and the title if there is one: a given name that cannot be typed. Raises FormatError if none can be."""
    given = " ".join(clean(given).split())
    if is_name(given):
        return given, ""
    if not is_name(fallback):
        raise FormatError(f"{_shown(fallback)} cannot be a name: blanks, slashes and more than {NAME_LIMIT} characters")
    return fallback, given


def is_name(name: str) -> bool:
    """Whether somebody can type it after a slash."""
    return bool(_NAME.fullmatch(name)) and name.isprintable() and name not in (".", "..")


def clean(value: str) -> str:
    """Without control characters; lines stay."""
    return value if value.isprintable() else _CONTROL.sub(" ", value)


def without_suffix(relative: str, *suffixes: str) -> str:
    """The file's path without the first of these endings that it has."""
    for suffix in suffixes:
        if relative.endswith(suffix):
            return relative[: -len(suffix)]
    return relative


def file_name(document: Document, *suffixes: str) -> str:
    """The name that its place gives: a skill's folder, a command's folders and file as `a:b`, an agent's file."""
    if document.kind is EntityKind.SKILL:
        return document.relative.rpartition("/")[0].rpartition("/")[2]
    stem = without_suffix(document.relative, *suffixes)
    return stem.replace("/", ":") if document.kind is EntityKind.COMMAND else stem.rpartition("/")[2]


def _aliases(name: str, title: str, value: Value | None) -> list[str]:
    if not title and not value:
        return []
    listed: Iterable[Any] = split_names(value) if isinstance(value, str) else value or ()
    names = [title, *(item for item in listed if isinstance(item, str))]
    by_folded = {fold(alias): alias for each in reversed(names) if (alias := " ".join(clean(each).split()))}
    by_folded.pop(fold(name), None)
    return list(reversed(by_folded.values()))


def _hint(value: Value | None) -> str:
    words = value if isinstance(value, str) else " ".join(item for item in value or () if isinstance(item, str))
    return " ".join(clean(words).split())


def _shown(name: str) -> str:
    return f'"{name if len(name) <= NAME_LIMIT else name[:NAME_LIMIT] + "…"}"'
