"""Map the names of models and tools of all agents to one spelling. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from atomic.entities.frontmatter import Value, is_false, text

INHERIT = "inherit"
_FAMILIES = ("opus", "sonnet", "haiku")
_WORDS = re.compile(r"[a-z0-9]+")


def normal_model(value: Value | None) -> tuple[str | None, str | None]:
    """Return our name for a model (the first of a list) and its spelling in the file.

    Both are None if the file names no model.
    """
    original = text(value).strip()
    if original[:1] == "[" and original[-1:] == "]":
        original = original[1:-1]
    original = original.split(",")[0].strip().strip("'\"")
    if not original:
        return None, None
    words = _WORDS.findall(original.lower())
    for family in _FAMILIES:
        if family in words and ("claude" in words or words[0] == family):
            return family, original
    return INHERIT, original


class Tools(NamedTuple):
    """The allowed tools (None: all) and the denied ones."""

    allowed: list[str] | None
    denied: list[str]


# Tools with one spelling for all agents. Other names are kept as they are.
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
    "codebase": ("grep", "glob", "read"),
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
# Copilot's sets of tools, as in `search/codebase`.
_SETS = frozenset({"search", "edit", "execute", "read", "web", "agent", "todo"})
_ALL = frozenset({"*", "all"})
_NONE = frozenset({"", "none", "null", "~", "[]", "{}"})
_NO = frozenset({"deny", "denied", "never"})


def normal_tools(value: Value | None) -> Tools:
    """Read a `tools` field: a list, a mapping or a text with commas; None means all."""
    if value is None:
        return Tools(None, [])
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if isinstance(value, str):
        return Tools([], []) if value.strip().lower() in _NONE else _from_names(split_names(value))
    return _from_names([item for item in value if isinstance(item, str)])


def normal_names(value: Value | None) -> list[str]:
    """Read a field that only lists names, like `disallowedTools`.

    Of a mapping its keys.
    """
    if value is None or (isinstance(value, str) and value.strip().lower() in _NONE):
        return []
    names = split_names(value) if isinstance(value, str) else [item for item in value if isinstance(item, str)]
    return _distinct_tools(names)


def denied_by_permission(value: Value | None) -> list[str]:
    """Return the tools that OpenCode's `permission` denies.

    `ask` and rules for single commands or files deny nothing. `edit` stands for all
    changes of files, a plain `deny` for everything.
    """
    if isinstance(value, str):
        return list(KNOWN_TOOLS) if _denies(value) else []
    if not isinstance(value, Mapping):
        return []
    denied = [name for name, rule in value.items() if _denies(rule)]
    if "*" in denied:
        allowed = _distinct_tools(_with_write(name for name in value if name not in denied))
        return [name for name in KNOWN_TOOLS if name not in allowed]
    return _distinct_tools(_with_write(denied))


def normal_tool(name: str) -> tuple[str, ...]:
    """Return our names for a tool; an unknown one keeps its spelling."""
    # `Bash(git:*)` names the tool Bash. Only its own agent checks the commands.
    plain = name.split("(", 1)[0].strip()
    known = _SAME.get(plain.lower())
    if known is None and "/" in plain:
        group, _, tool = plain.lower().partition("/")
        # Any other group is an MCP server.
        if group in _SETS:
            known = _SAME.get(tool, _SAME[group])
    return known or ((plain,) if plain else ())


def split_names(names: str) -> list[str]:
    """Split a text at commas, or else at blanks, but not inside parentheses.

    Brackets around the text are dropped: a list in text that is not valid YAML.
    """
    names = names.strip()
    if names[:1] == "[" and names[-1:] == "]":
        names = names[1:-1]
    parts = _split(names, ",\n")
    if len(parts) == 1:
        parts = _split(names, " \t")
    stripped = (part.strip().strip("'\"") for part in parts)
    return [name for name in stripped if name]


def _split(names: str, separators: str) -> list[str]:
    parts: list[str] = []
    depth = 0
    start = 0
    for at, letter in enumerate(names):
        if letter in "()":
            depth = depth + 1 if letter == "(" else max(0, depth - 1)
        elif not depth and letter in separators:
            parts.append(names[start:at])
            start = at + 1
    return [*parts, names[start:]]


def _from_names(names: list[str]) -> Tools:
    """Read names; `!bash` and `-bash` are denied.

    Only denied names: allow all others.
    """
    excluded = [name[1:] for name in names if name[:1] in ("!", "-")]
    included = [name for name in names if name[:1] not in ("!", "-")]
    denied = _distinct_tools(excluded)
    if any(name.strip().lower() in _ALL for name in included) or (excluded and not included):
        return Tools(None, denied)
    return Tools(_distinct_tools(included), denied)


def _from_mapping(value: Mapping[str, Value]) -> Tools:
    off = [name for name, rule in value.items() if is_false(rule) or _denies(rule)]
    on = [name for name in value if name not in off]
    if not value or (off and "*" in off):
        return Tools(_distinct_tools(on), [])
    if not on or any(name.lower() in _ALL for name in on):
        return Tools(None, _distinct_tools(off))
    return Tools(_distinct_tools(on), [])


def _denies(rule: Value) -> bool:
    """Return whether a rule denies everything: the word, or a mapping with `*: deny`."""
    if isinstance(rule, str):
        return rule.strip().lower() in _NO
    return isinstance(rule, Mapping) and "*" in rule and _denies(rule["*"])


def _with_write(names: Iterable[str]) -> Iterator[str]:
    """Add `write` after `edit`, which stands for all changes of files in permissions."""
    for name in names:
        yield name
        if name == "edit":
            yield "write"


def _distinct_tools(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(tool for name in names for tool in normal_tool(name)))
