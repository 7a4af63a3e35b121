"""`atomic completion SHELL` prints a script for a shell, or installs it.

The script calls `atomic complete` at every Tab.

Tab works in untrusted repositories too: names are read as text, no code of a project
runs, and a name with characters that a shell might interpret is not offered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.base.flags import Flag
from atomic.base.terminal import one_line
from atomic.cli.streams import put
from atomic.cli.verbs import TOP, VERBS, Verb, expand
from atomic.cli.workflow_sources import find_written, read_text, written_workflows

SHELLS = ("bash", "zsh", "fish")
MAX_SESSIONS = 50  # only the newest ones
_ID_LENGTH = 36
_SAFE_SIGNS = "._:@/+-="  # characters without a meaning for any shell, besides letters and digits
_AGENT_PREFIXES = ("acp:", "replay:")

Candidate = tuple[str, str]  # a word and its description


def print_script(arguments: Arguments) -> int:
    """Print the script for a shell, which is the same on every machine, or install it."""
    from atomic.cli.completion_install import guess_shell, install  # a Tab must not pay for it

    installs = arguments.has("--install")
    if arguments.has("--dry-run") and not installs:
        raise UsageError("--dry-run goes with --install: atomic completion --install --dry-run")
    if not arguments.words and not installs:
        shells = ", ".join(SHELLS)
        raise UsageError(f"atomic completion needs a SHELL ({shells}); --install finds out and installs it")
    shell = arguments.words[0] if arguments.words else guess_shell(os.environ, SHELLS)
    if shell not in SHELLS:
        raise UsageError(f'No completion for "{shell}": choose one of {", ".join(SHELLS)}')
    if installs:
        return install(shell, script_for(shell), dry_run=arguments.has("--dry-run"))
    put(script_for(shell))
    return ExitCode.DONE


def script_for(shell: str) -> str:
    """Return the completion script of a shell."""
    return Path(__file__).with_name("shells").joinpath(f"completion.{shell}").read_text(encoding="utf-8")


def complete(words: Sequence[str]) -> int:
    """Print a line for each completion of the last word.

    With no output the shell offers files.
    """
    *before, current = words or ("",)
    seen: set[str] = set()
    for name, text in _candidates(before, current):
        is_safe = bool(name) and all(sign.isalnum() or sign in _SAFE_SIGNS for sign in name)
        if is_safe and name.startswith(current) and name not in seen:
            seen.add(name)
            description = one_line(text)[:80]
            put(f"{name}\t{description}\n" if description else f"{name}\n")
    return ExitCode.DONE


def _candidates(before: Sequence[str], current: str) -> Iterable[Candidate]:
    """Return words that may follow `before`; not all of them begin with `current`."""
    is_flag = current.startswith("-")
    before = expand(before)
    if not before:
        return _describe_flags(TOP) if is_flag else _describe_verbs(VERBS)
    verb = VERBS.get(before[0])
    if verb is None:
        return _complete_flag(TOP, before, current)
    rest = before[1:]
    if verb.verbs and not rest and not is_flag:
        return _describe_verbs(verb.verbs)
    if verb.verbs and rest and rest[0] in verb.verbs:
        verb = verb.verbs[rest[0]]
        rest = rest[1:]
    elif verb.verbs:
        verb = verb.verbs[verb.default]
    flags = (*verb.flags, *_workflow_flags(verb, rest)) if is_flag else verb.flags
    return _complete_flag(flags, rest, current) or _complete_argument(verb, rest)


def _describe_verbs(verbs: dict[str, Verb]) -> list[Candidate]:
    return [(verb.name, verb.summary) for verb in verbs.values()]


def _describe_flags(flags: Iterable[Flag]) -> list[Candidate]:
    return [(flag.name, flag.help) for flag in flags]


def _workflow_flags(verb: Verb, words: Sequence[str]) -> Iterable[Flag]:
    """Return the flags of the workflow that a word names, directly or as the id of one
    of its runs.
    """
    if verb.workflow is None:
        return ()
    from atomic.config import atomic_home, config_home, find_project

    home = config_home()
    sessions = atomic_home() / "sessions"
    for word in words:
        record = _read_record(sessions / word) if len(word) == _ID_LENGTH else {}
        if record:
            path = str(record.get("workflow_path")) if record.get("workflow_source") == "file" else ""
            workflow = find_written(path or str(record.get("workflow")), Path(str(record.get("project"))), home)
        else:
            workflow = find_written(word, find_project(), home)
        if workflow is not None:
            return [flag for flag in workflow.flags() if flag.is_for_resume or not verb.resumes]
    return ()


def _complete_flag(flags: Sequence[Flag], before: Sequence[str], current: str) -> list[Candidate]:
    """Return the flags, or the values of the flag that precedes the current word or its
    `=`.
    """
    by_name = {name: flag for flag in flags for name in flag.names if flag.value}
    name, equals, _ = current.partition("=")
    if equals and name in by_name:
        return [(f"{name}={value}", text) for value, text in _flag_values(by_name[name])]
    if current.startswith("-"):
        return _describe_flags(flags)
    return _flag_values(by_name[before[-1]]) if before and before[-1] in by_name else []


def _flag_values(flag: Flag) -> list[Candidate]:
    if flag.choices:
        return [(choice, "") for choice in flag.choices]
    kind = flag.value.rpartition("]")[2]  # [ROLE=]AGENT
    return list(_KINDS[kind]()) if kind in _KINDS else []


def _complete_argument(verb: Verb, rest: Sequence[str]) -> Iterable[Candidate]:
    """Return the names that fit the next argument of a verb."""
    with_value = {name for flag in verb.flags for name in flag.names if flag.value}
    given = 0
    previous = ""
    for word in rest:
        if not word.startswith("-") and previous not in with_value:
            given += 1
        previous = word
    if given >= len(verb.words):
        return ()
    kind = verb.words[given].strip("[].")
    if verb.path == "login":
        return _known_agents()
    if kind == "NAME":
        group = verb.path.partition(" ")[0]
        kind = {"entities": "ENTITY", "workflows": "WORKFLOW"}.get(group, kind)
    if kind not in _KINDS:
        return ()
    return (candidate for candidate in _KINDS[kind]() if not candidate[0].startswith("-"))


def _workflows() -> Iterator[Candidate]:
    from atomic.config import config_home, find_project

    for level in written_workflows(find_project(), config_home()):
        for workflow in level:
            yield workflow.name, ""
            yield from ((alias, f"is {workflow.name}") for alias in workflow.aliases)


def _entities() -> Iterator[Candidate]:
    from atomic.config import find_project
    from atomic.entities import EntityKind, EntityRegistry

    registry = EntityRegistry.load(find_project())
    for kind in EntityKind:
        yield from ((entity.name, entity.description) for entity in registry.all(kind))


def _sessions() -> Iterator[Candidate]:
    """Return the sessions whose folders changed last."""
    from atomic.config import atomic_home

    found: list[tuple[float, str]] = []
    try:
        with os.scandir(atomic_home() / "sessions") as folders:
            for folder in folders:
                if len(folder.name) == _ID_LENGTH:
                    found.append((folder.stat(follow_symlinks=False).st_mtime, folder.path))
    except OSError:
        return
    for _, path in sorted(found, reverse=True)[:MAX_SESSIONS]:
        record = _read_record(Path(path))
        yield os.path.basename(path), " ".join(str(record.get(key, "")) for key in ("workflow", "status", "prompt"))


def _read_record(folder: Path) -> dict[str, Any]:
    """Return the content of a session.json; empty if it is missing or invalid."""
    import json

    try:
        record: Any = json.loads(read_text(folder / "session.json") or "{}")
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", record) if isinstance(record, dict) else {}


def _known_agents() -> Iterator[Candidate]:
    from atomic.config.known_agents import KNOWN_AGENTS

    return ((agent.name, agent.title) for agent in KNOWN_AGENTS)


def _agents() -> Iterator[Candidate]:
    yield from _known_agents()
    yield from ((prefix, "") for prefix in _AGENT_PREFIXES)


_KINDS: dict[str, Callable[[], Iterable[Candidate]]] = {
    "WORKFLOW": _workflows,
    "ENTITY": _entities,
    "ID": _sessions,
    "VERB": lambda: _describe_verbs(VERBS),
    "SCHEMA": lambda: ((name, "") for name in ("config", "tasks", "events", "recording")),
    "SHELL": lambda: ((shell, "") for shell in SHELLS),
    "AGENT": _agents,
}
