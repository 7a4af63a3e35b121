"""The agents under test: their environments, and how each spells a tool call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from atomic.testing.model_server import (
    Call,
    ModelServer,
    claude_env,
    codex_env,
    copilot_env,
    gemini_env,
    opencode_env,
)
from atomic.testing.model_server.environments import CODEX_MODELS

Environment = Callable[[ModelServer, Path, Path], Mapping[str, str]]
"""Takes the model server, a home folder, and a folder for caches that may outlive the test."""


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent under test."""

    name: str  # for `require_provider`
    program: str  # part of the name of its process
    environment: Environment
    words: Words
    models: Sequence[str] = ("scripted-1", "scripted-2")


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """How a model calls the tools of one agent."""

    write: Callable[[Path, str], Call]
    edit: Callable[[Path, str, str], Call]
    bash: Callable[[str], Call]
    subagent: Callable[[str, str], Call]  # its name, its prompt
    ask: Callable[[Sequence[Mapping[str, Any]]], Call]  # questions: text, options, multi
    answer: Callable[[Mapping[str, Any]], Call | str]  # a structured answer
    mcp: Callable[[str, str, Mapping[str, Any]], Call]  # server, tool, input
    custom: Callable[[str, Mapping[str, Any]], Call]


def _choices(question: Mapping[str, Any], multi: str) -> dict[str, Any]:
    options = [{"label": label, "description": f"takes {label}"} for label in question["options"]]
    return {
        "question": question["text"],
        "header": question.get("header", "Choice"),
        "options": options,
        multi: bool(question.get("multi")),
    }


CLAUDE_WORDS = Words(
    write=lambda path, text: Call("Write", {"file_path": str(path), "content": text}),
    edit=lambda path, old, new: Call("Edit", {"file_path": str(path), "old_string": old, "new_string": new}),
    bash=lambda command: Call("Bash", {"command": command, "description": "runs a command"}),
    subagent=lambda name, prompt: Call(
        ["Agent", "Task"],
        {"description": "a part of the work", "prompt": prompt, "subagent_type": name, "run_in_background": False},
    ),
    ask=lambda questions: Call(
        "AskUserQuestion", {"questions": [_choices(question, "multiSelect") for question in questions]}
    ),
    answer=lambda value: Call("StructuredOutput", value),
    mcp=lambda server, tool, input: Call(f"mcp__{server}__{tool}", input),
    custom=lambda tool, input: Call(f"mcp__atomic__{tool}", input),
)

OPENCODE_WORDS = Words(
    write=lambda path, text: Call("write", {"filePath": str(path), "content": text}),
    edit=lambda path, old, new: Call("edit", {"filePath": str(path), "oldString": old, "newString": new}),
    bash=lambda command: Call("bash", {"command": command, "description": "runs a command"}),
    subagent=lambda name, prompt: Call(
        "task", {"description": "a part of the work", "prompt": prompt, "subagent_type": name}
    ),
    ask=lambda questions: Call("question", {"questions": [_choices(question, "multiple") for question in questions]}),
    answer=lambda value: Call("StructuredOutput", value),
    mcp=lambda server, tool, input: Call(f"{server}_{tool}", input),
    custom=lambda tool, input: Call(f"atomic_{tool}", input),
)


def _copilot_question(questions: Sequence[Mapping[str, Any]]) -> Call:
    """Return a call with a form: one field for each question, a list for multi-select."""
    properties: dict[str, Any] = {}
    for question in questions:
        field: dict[str, Any] = {"type": "string", "enum": list(question["options"])}
        if question.get("multi"):
            field = {"type": "array", "items": field}
        properties[question.get("header", "choice")] = {"title": question["text"], **field}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Call("ask_user", {"message": questions[0]["text"], "requestedSchema": schema})


def _as_text(value: Mapping[str, Any]) -> str:
    return msgspec.json.encode(value).decode()


COPILOT_WORDS = Words(
    write=lambda path, text: Call("create", {"path": str(path), "file_text": text}),
    edit=lambda path, old, new: Call("edit", {"path": str(path), "old_str": old, "new_str": new}),
    bash=lambda command: Call("bash", {"command": command, "description": "runs a command", "mode": "sync"}),
    subagent=lambda name, prompt: Call(
        "task",
        {"name": "part", "description": "a part of the work", "prompt": prompt, "agent_type": name, "mode": "sync"},
    ),
    ask=_copilot_question,
    answer=_as_text,
    mcp=lambda server, tool, input: Call(f"{server}-{tool}", input),
    custom=lambda tool, input: Call(tool, input),
)


# Codex changes files with commands, or with a tool that takes a patch as plain text.
CODEX_WORDS = Words(
    write=lambda path, text: _shell(f"cat > {quote(str(path))} <<'END'\n{text}END"),
    edit=lambda path, old, new: _shell(
        f"test -f {quote(str(path))} && sed -i {quote(f's/{old}/{new}/')} {quote(str(path))}"
    ),
    bash=lambda command: _shell(command),
    subagent=lambda name, prompt: Call("spawn_agent", {"agent_type": name, "message": prompt}),
    ask=lambda questions: Call(
        "request_user_input",
        {"questions": [{"id": "choice", **_choices(question, "multiple")} for question in questions]},
    ),
    answer=_as_text,
    mcp=lambda server, tool, input: Call(f"mcp__{server}.{tool}", input),
    custom=lambda tool, input: Call(f"mcp__atomic.{tool}", input),
)


def _shell(command: str) -> Call:
    return Call({"exec_command": {"cmd": command}, "shell_command": {"command": command}})


GEMINI_WORDS = Words(
    write=lambda path, text: Call("write_file", {"file_path": str(path), "content": text}),
    edit=lambda path, old, new: Call(
        "replace", {"file_path": str(path), "instruction": "change it", "old_string": old, "new_string": new}
    ),
    bash=lambda command: Call("run_shell_command", {"command": command, "description": "runs a command"}),
    subagent=lambda name, prompt: Call(name, {"objective": prompt}),
    ask=lambda questions: Call(
        "ask_user", {"questions": [_choices(question, "multiSelect") for question in questions]}
    ),
    answer=_as_text,
    mcp=lambda server, tool, input: Call(f"mcp_{server}_{tool}", input),
    custom=lambda tool, input: Call(f"mcp_atomic_{tool}", input),
)


AGENTS: Mapping[str, Agent] = {
    "claude": Agent(
        name="claude",
        program="claude",
        environment=lambda server, home, cache: claude_env(server, home),
        words=CLAUDE_WORDS,
    ),
    "opencode": Agent(
        name="opencode",
        program="opencode",
        environment=lambda server, home, cache: opencode_env(server, home),
        words=OPENCODE_WORDS,
        models=("scripted/scripted-1", "scripted/scripted-2"),
    ),
    "copilot": Agent(
        name="copilot",
        program="copilot",
        environment=lambda server, home, cache: copilot_env(server, home, cache=cache / "copilot"),
        words=COPILOT_WORDS,
    ),
    "codex": Agent(
        name="codex",
        program="codex",
        environment=lambda server, home, cache: codex_env(server, home),
        words=CODEX_WORDS,
        models=CODEX_MODELS,
    ),
    "acp:claude": Agent(
        name="acp:claude",
        program="claude",
        # Its list of models has only families, which these variables give a name.
        environment=lambda server, home, cache: {
            **claude_env(server, home),
            "ANTHROPIC_DEFAULT_SONNET_MODEL": "sonnet",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "haiku",
        },
        words=msgspec.structs.replace(CLAUDE_WORDS, answer=_as_text),
        models=("sonnet", "haiku"),
    ),
    "gemini": Agent(
        name="gemini",
        program="gemini",
        environment=lambda server, home, cache: gemini_env(server, home),
        words=GEMINI_WORDS,
    ),
}
