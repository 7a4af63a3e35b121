"""One spelling for the models and tools that each provider spells its own way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from atomic.entities.values import Value, is_false, text

INHERIT = "inherit"
_FAMILIES = ("opus", "sonnet", "haiku")
_WORDS = re.compile(r"[a-z0-9]+")


def normal_model(value: Value | None) -> tuple[str | None, str | None]:
    """Our word for a model, and how the file spells it: the first of a list. None: the file says nothing."""
    original = text(value).strip()
    if original[:1] == "[" and original[-1:] == "]":  # a list that was no YAML
        original = original[1:-1]
    original = original.split(",")[0].strip().strip("'\"")
    return (_family(original), original) if original else (None, None)


def _family(model: str) -> str:
    words = _WORDS.findall(model.lower())
    for family in _FAMILIES:
        if family in words and ("claude" in words or words[0] == family):
            return family
    return INHERIT


class Tools(NamedTuple):
    """The tools that may be used (None: all), and those that may not."""

    allowed: list[str] | None
    denied: list[str]


# The names that all providers know under one spelling; what is not here is kept as it is.
KNOWN_TOOLS = (
    "write",
    "edit",
    "bash",
    "read",
    "glob",
    "grep",
    "webfetch",
    "websearch",
    "task",
    "todo",
    "skill",
    "question",
)
_SAME: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in KNOWN_TOOLS},
    **dict.fromkeys(("shell", "execute", "powershell", "runcommands", "runinterminal", "runcommand"), ("bash",)),
    **dict.fromkeys(("view", "notebookread", "readfile"), ("read",)),
    **dict.fromkeys(("create", "createfile", "new"), ("write",)),
    **dict.fromkeys(("multiedit", "notebookedit", "apply_patch", "patch", "editfiles"), ("edit",)),
    **dict.fromkeys(("filesearch", "findfiles"), ("glob",)),
    **dict.fromkeys(("textsearch", "findtextinfiles"), ("grep",)),
    "search": ("grep", "glob"),
    "codebase": ("grep", "glob", "read"),  # it gives what it finds
    **dict.fromkeys(("web_fetch", "fetch"), ("webfetch",)),
    **dict.fromkeys(("web_search",), ("websearch",)),
    "web": ("webfetch", "websearch"),
    **dict.fromkeys(("agent", "custom-agent", "runsubagent"), ("task",)),
    **dict.fromkeys(("todowrite", "todoread", "todos", "update_todo"), ("todo",)),
    **dict.fromkeys(("taskcreate", "taskget", "tasklist", "taskupdate"), ("todo",)),
    **dict.fromkeys(("askuserquestion", "ask_user", "askquestions"), ("question",)),
    "ls": ("list",),
    "list": ("list",),
}
_SETS = frozenset({"search", "edit", "execute", "read", "web", "agent", "todo"})  # of Copilot: `search/codebase`
_ALL = frozenset({"*", "all"})
_NONE = frozenset({"", "none", "null", "~", "[]", "{}"})
_NO = frozenset({"deny", "denied", "never"})


def normal_tools(value: Value | None) -> Tools:
    """What a `tools` field says: a list, a mapping or a text with commas; absent: all."""
    if value is None:
        return Tools(None, [])
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if isinstance(value, str):
        return _from_names(split_names(value)) if value.strip().lower() not in _NONE else Tools([], [])
    return _from_names([item for item in value if isinstance(item, str)])


def normal_names(value: Value | None) -> list[str]:
    """The names in a field that only lists, as `disallowedTools` does; of a mapping those that it names."""
    if value is None or (isinstance(value, str) and value.strip().lower() in _NONE):
        return []
    names = split_names(value) if isinstance(value, str) else [item for item in value if isinstance(item, str)]
    return _distinct(one for name in names for one in normal_tool(name))


def denied_by_permission(value: Value | None) -> list[str]:
    """What OpenCode's `permission` denies. `ask` denies nothing; rules for some commands or files only neither.

    Its `edit` is about every change of a file. `deny` alone is about everything.
    """
    if isinstance(value, str):
        return list(KNOWN_TOOLS) if _is_no(value) else []
    if not isinstance(value, Mapping):
        return []
    denied = [name for name, rule in value.items() if _denies(rule)]
    if "*" in denied:
        allowed = {one for name in value if name not in denied for one in _permission(name)}
        return [name for name in KNOWN_TOOLS if name not in allowed]
    return _distinct(one for name in denied for one in _permission(name))


def normal_tool(name: str) -> tuple[str, ...]:
    """Our names for a tool; an unknown one keeps its own, case and all."""
    plain = name.split("(", 1)[0].strip()  # `Bash(git:*)` is about the tool; which commands, its own agent knows
    known = _SAME.get(plain.lower())
    if known is None and "/" in plain:
        group, _, tool = plain.lower().partition("/")  # any other group is an MCP server
        known = _SAME.get(tool, _SAME[group]) if group in _SETS else None
    return known or ((plain,) if plain else ())


def split_names(names: str) -> list[str]:
    """The names in a text, at commas or else at blanks, but not inside parentheses; brackets around are dropped."""
    names = names.strip()
    if names[:1] == "[" and names[-1:] == "]":  # a list that was no YAML
        names = names[1:-1]
    parts = _split(names, ",\n")
    if len(parts) == 1:
        parts = _split(names, " \t")
    return [stripped for part in parts if (stripped := part.strip().strip("'\""))]


def _split(names: str, separators: str) -> list[str]:
    parts: list[str] = []
    depth = start = 0
    for at, letter in enumerate(names):
        if letter in "()":
            depth = depth + 1 if letter == "(" else max(0, depth - 1)
        elif not depth and letter in separators:
            parts.append(names[start:at])
            start = at + 1
    return [*parts, names[start:]]


def _from_names(names: list[str]) -> Tools:
    """`!bash` and `-bash` are exclusions; with nothing but exclusions all others are allowed."""
    excluded = [name[1:] for name in names if name[:1] in ("!", "-")]
    included = [name for name in names if name[:1] not in ("!", "-")]
    denied = _distinct(one for name in excluded for one in normal_tool(name))
    if any(name.strip().lower() in _ALL for name in included) or (excluded and not included):
        return Tools(None, denied)
    return Tools(_distinct(one for name in included for one in normal_tool(name)), denied)


def _from_mapping(value: Mapping[str, Value]) -> Tools:
    off = [name for name, rule in value.items() if is_false(rule) or _denies(rule)]
    on = [name for name in value if name not in off]
    if not value or (off and "*" in off):
        return Tools(_distinct(one for name in on for one in normal_tool(name)), [])
    denied = _distinct(one for name in off for one in normal_tool(name))
    if not on or any(name.lower() in _ALL for name in on):
        return Tools(None, denied)
    return Tools(_distinct(one for name in on for one in normal_tool(name)), [])


def _denies(rule: Value) -> bool:
    """Whether it denies all: the word, or a mapping whose rule for everything does. What no rule is for is allowed."""
    if isinstance(rule, str):
        return _is_no(rule)
    return isinstance(rule, Mapping) and "*" in rule and _denies(rule["*"])


def _is_no(word: str) -> bool:
    return word.strip().lower() in _NO


def _permission(name: str) -> tuple[str, ...]:
    return ("edit", "write") if name == "edit" else normal_tool(name)


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
