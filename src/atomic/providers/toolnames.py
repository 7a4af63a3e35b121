"""The tools that all agents have, under one name; each agent spells them its own way.

An entity that says `bash` means Claude's `Bash`, too. A name that is not here goes through as it is: it is a tool of
an MCP server, or one that only that agent has.
"""

from __future__ import annotations

from collections.abc import Iterable

_SPELLINGS: dict[str, dict[str, tuple[str, ...]]] = {
    "claude": {
        "bash": ("Bash",),
        "read": ("Read",),
        "write": ("Write",),
        "edit": ("Edit", "NotebookEdit"),
        "glob": ("Glob",),
        "grep": ("Grep",),
        "webfetch": ("WebFetch",),
        "websearch": ("WebSearch",),
        "task": ("Agent", "Task"),
        "todo": ("TodoWrite", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate"),
        "skill": ("Skill",),
        "question": ("AskUserQuestion",),
    },
    "opencode": {
        "edit": ("edit", "apply_patch"),
        "todo": ("todowrite",),
    },
    "copilot": {
        "bash": ("bash", "read_bash", "write_bash", "stop_bash", "list_bash"),
        "read": ("view",),
        "write": ("create",),
        "edit": ("edit", "apply_patch"),
        "webfetch": ("web_fetch",),
        "websearch": ("web_search",),
        "todo": ("sql",),
        "question": ("ask_user",),
    },
}
_SAME = {
    "view": "read",
    "create": "write",
    "agent": "task",
    "todowrite": "todo",
    "web_fetch": "webfetch",
    "web_search": "websearch",
    "askuserquestion": "question",
    "ask_user": "question",
    "shell": "bash",
}


def spelled(names: Iterable[str], provider: str) -> list[str]:
    """The names as that provider spells them; one of ours may be several of its."""
    table = _SPELLINGS[provider]
    result: dict[str, None] = {}
    for name in names:
        plain = _SAME.get(name.lower(), name.lower())
        result.update(dict.fromkeys(table.get(plain) or (_kept(name, plain, provider),)))
    return list(result)


def _kept(name: str, plain: str, provider: str) -> str:
    """A name that is spelled alike everywhere but for its case, else just what was given."""
    if provider == "copilot" and name.startswith("mcp__"):
        return "-".join(name.removeprefix("mcp__").split("__", 1)).removesuffix("-*")
    return plain if provider != "claude" and plain in _SPELLINGS["claude"] else name
