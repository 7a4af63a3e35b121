"""Translate names of common tools to the spelling of each agent.

An entity that names `bash` means Claude's `Bash`, too. Unknown names stay as they are:
they are tools of an MCP server, or of one agent only.
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
    """Return the names as the provider spells them; one name may become several."""
    table = _SPELLINGS[provider]
    result: dict[str, None] = {}
    for name in names:
        plain = _SAME.get(name.lower(), name.lower())
        result.update(dict.fromkeys(table.get(plain) or (_kept(name, plain, provider),)))
    return list(result)


def _kept(name: str, plain: str, provider: str) -> str:
    """Return a name without spellings: in lower case if it is a common tool, else as
    given.
    """
    if provider == "copilot" and name.startswith("mcp__"):
        return "-".join(name.removeprefix("mcp__").split("__", 1)).removesuffix("-*")
    return plain if provider != "claude" and plain in _SPELLINGS["claude"] else name
