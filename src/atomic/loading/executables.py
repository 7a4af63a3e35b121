"""All that a project could have run: its workflows and tools, and what the agents run by themselves.

The files of the agents are looked for where the agents do it: in the project's folder and above it, up to the root of
its repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import msgspec

from atomic.base import jsonc
from atomic.base.untrusted_files import FoundFile, Root
from atomic.config import atomic_home, main_checkout, up_to_repository
from atomic.entities.registry import find_covering
from atomic.loading.named_files import named_files
from atomic.loading.project_check import find_gate

WORKFLOWS, TOOLS = ".atomic/workflows", ".atomic/tools"


class Kind(StrEnum):
    """What an item is."""

    WORKFLOW = "workflow"
    TOOL = "tool"
    SETUP = "worktree-setup"
    GATE = "gate"
    MCP = "mcp"
    HOOK = "hook"
    PLUGIN = "plugin"
    SETTINGS = "settings"  # of an agent, with something in it that could run
    SCRIPT = "script"  # a file of the project that such settings name
    ENTITY = "entity"  # an agent, skill or command of the project with a built-in name


class Item(msgspec.Struct, frozen=True):
    """One thing that could run. `text` is what a person is shown of it."""

    kind: Kind
    path: str  # from the project's folder
    sha256: str
    text: str = ""
    reason: str = ""  # why its content could not be read

    @property
    def key(self) -> str:
        """What it is, whatever its content: a gate is its command."""
        return f"{self.kind} {self.path}" + (f" {self.sha256}" if self.kind is Kind.GATE else "")

    @property
    def blocks(self) -> bool:
        """Whether nobody can approve it: an agent could read what we did not."""
        return bool(self.reason) and self.kind not in (Kind.WORKFLOW, Kind.TOOL)


class Executables(msgspec.Struct, frozen=True):
    """What was found: the items, and the bytes of those that Atomic itself runs, by path."""

    items: tuple[Item, ...] = ()
    files: Mapping[str, bytes] = {}
    refused: Mapping[str, str] = {}  # files of workflows and tools that are not read, and why


def find_executables(project: Path) -> Executables:
    """Everything in a project that could run. In the home folder there is only what is the user's own."""
    if is_home(project):
        return Executables()
    root = Root.of_project(project)
    own = () if has_users_folder(project) else _atomics(root)
    found = [*own, *_agents(project), *_entities(root)]
    ours = [(item, file) for item, file in found if item.kind in (Kind.WORKFLOW, Kind.TOOL)]
    return Executables(
        tuple(sorted((item for item, _ in found), key=lambda item: (item.path, item.kind, item.sha256))),
        {file.name: file.data for _, file in ours if not file.reason},
        {file.name: file.reason for _, file in ours if file.reason},
    )


def is_home(folder: Path) -> bool:
    """What lies in the home folder is the user's own: it is no project."""
    return os.path.realpath(folder) == os.path.realpath(Path.home())


def has_users_folder(project: Path) -> bool:
    """Whether its `.atomic` is the one with all that is the user's own."""
    return os.path.realpath(project / ".atomic") == os.path.realpath(atomic_home())


def agent_files(folder: Path) -> list[Item]:
    """What agents would run by themselves in one folder, without those above it."""
    return [item for item, _ in _agents_at(Root.of_project(folder), "")]


Found = tuple[Item, FoundFile]


def shown_path(name: str) -> str:
    """A path as text, whatever bytes it has."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _item(kind: Kind, file: FoundFile, prefix: str = "") -> Item:
    path = shown_path(f"{prefix}{file.name}")
    if file.reason:
        return Item(kind, path, sha256(f"not read: {file.reason}".encode()).hexdigest(), reason=file.reason)
    return Item(kind, path, sha256(file.data).hexdigest(), file.data.decode("utf-8", "replace"))


# Atomic's own ------------------------------------------------------------------------------------------------------


def _atomics(root: Root) -> Iterator[Found]:
    yield from _own(root, Kind.WORKFLOW, WORKFLOWS)
    yield from _own(root, Kind.TOOL, TOOLS)
    yield from _single(root, Kind.SETUP, ".atomic/worktree-setup")
    yield from _gates(root)
    yield from _found_gate(root)


def _own(root: Root, kind: Kind, folder: str) -> Iterator[Found]:
    """Python files; whatever else is there can only be read by them."""
    for file in root.walk(folder):
        if file.reason or file.name.endswith(".py"):
            yield _item(kind, file), file


def _single(root: Root, kind: Kind, name: str) -> Iterator[Found]:
    if (file := root.read(name)) is not None:
        yield _item(kind, file), file


def _gates(root: Root) -> Iterator[Found]:
    """The commands that the project's configuration wants its work checked with: each is hashed as it stands there."""
    file = root.read(".atomic/config.toml")
    if file is None:
        return
    from atomic.base.toml import load_toml  # most projects have no such file

    try:
        data: Any = load_toml(file.data.decode())
    except (ValueError, RecursionError):  # whoever reads the settings says what is wrong with it
        return
    for command in _commands(data.get("workflows")):
        text = command.encode("utf-8", "replace").decode()
        yield Item(Kind.GATE, file.name, sha256(text.encode()).hexdigest(), text), file


def _found_gate(root: Root) -> Iterator[Found]:
    """The command that the project's own files bring; the command is hashed, not the files that it uses."""
    gate = find_gate(Path(root.folder))
    file = None if gate is None else root.read(gate.origin)
    if gate is not None and file is not None:
        yield Item(Kind.GATE, file.name, sha256(gate.command.encode()).hexdigest(), gate.command), file


def _commands(workflows: object) -> Iterator[str]:
    tables = cast("dict[str, Any]", workflows).values() if isinstance(workflows, dict) else ()
    for table in tables:
        said = cast("dict[str, Any]", table).get("verify") if isinstance(table, dict) else None
        for command in cast("list[object]", said) if isinstance(said, list) else [said]:
            if isinstance(command, str):
                yield command
            elif command is not None:
                yield msgspec.json.encode(command, enc_hook=str).decode()


# the agents' -------------------------------------------------------------------------------------------------------


def _entities(root: Root) -> Iterator[Found]:
    """Files that take the place of built-in agents and skills: with their words an agent works and reviews."""
    paths = {os.path.relpath(entity.source.path, root.folder) for entity in find_covering(root.folder)}
    for path in sorted(paths):
        if (file := root.read(path)) is not None:
            yield _item(Kind.ENTITY, file), file


Judge = Callable[[FoundFile], Sequence[Kind]]


def _always(*kinds: Kind) -> Judge:
    return lambda file: kinds


def _by_key(keys: Mapping[str, Kind], harmless: frozenset[str] | None = None) -> Judge:
    """By the keys of a JSON object; a file that cannot be read here may be readable for the agent.

    A file whose keys are all `harmless` is no item; without such keys it always is one.
    """

    def judge(file: FoundFile) -> Sequence[Kind]:
        try:
            text = file.data.decode("utf-8-sig")
            said = {key for key, value in jsonc.parse(text).items() if value} if text.strip() else set[str]()
        except (ValueError, RecursionError):
            return (Kind.SETTINGS,)
        found = tuple(dict.fromkeys(keys[key] for key in sorted(said) if key in keys))
        if found or (harmless is not None and not file.reason and said <= harmless):
            return found
        return (Kind.SETTINGS,)

    return judge


_HINT = re.compile(rb"\\|mcp|hook", re.IGNORECASE)


def _if_it_says_so(file: FoundFile) -> Sequence[Kind]:
    """An agent's Markdown that speaks of servers or hooks, or has a backslash, by which a word can be hidden."""
    return (Kind.HOOK,) if file.reason or _HINT.search(file.data) else ()


_CLAUDE = _by_key({"hooks": Kind.HOOK})
_OPENCODE = _by_key(
    {"mcp": Kind.MCP, "plugin": Kind.PLUGIN, "plugins": Kind.PLUGIN},
    frozenset({"$schema", "model", "small_model", "theme", "keybinds", "username", "share", "autoupdate"}),
)
_FILES: Sequence[tuple[str, Judge]] = (
    (".claude/settings.json", _CLAUDE),
    (".claude/settings.local.json", _CLAUDE),
    (".mcp.json", _always(Kind.MCP)),
    (".atomic/mcp.json", _always(Kind.MCP)),
    (".vscode/mcp.json", _always(Kind.MCP)),
    (".github/mcp.json", _always(Kind.MCP)),
    (".github/lsp.json", _always(Kind.SETTINGS)),
    (".github/copilot/settings.json", _always(Kind.SETTINGS)),
    (".github/copilot/settings.local.json", _always(Kind.SETTINGS)),
    ("opencode.json", _OPENCODE),
    ("opencode.jsonc", _OPENCODE),
    (".opencode/opencode.json", _OPENCODE),
    (".opencode/opencode.jsonc", _OPENCODE),
    (".opencode/package.json", _always(Kind.PLUGIN)),
    (".codex/config.toml", _always(Kind.SETTINGS)),
    (".codex/hooks.json", _always(Kind.HOOK)),
    (".gemini/settings.json", _always(Kind.SETTINGS)),
    (".gemini/.env", _always(Kind.SETTINGS)),
)
_FOLDERS: Sequence[tuple[str, Judge]] = (
    (".claude/hooks", _always(Kind.HOOK)),
    (".claude/agents", _if_it_says_so),
    (".claude/skills", _if_it_says_so),
    (".claude/commands", _if_it_says_so),
    (".opencode/plugin", _always(Kind.PLUGIN)),
    (".opencode/plugins", _always(Kind.PLUGIN)),
    (".opencode/tool", _always(Kind.PLUGIN)),
    (".opencode/tools", _always(Kind.PLUGIN)),
    (".github/hooks", _always(Kind.HOOK)),
    (".github/extensions", _always(Kind.PLUGIN)),
    (".github/agents", _if_it_says_so),
    (".codex/hooks", _always(Kind.HOOK)),
    (".gemini/hooks", _always(Kind.HOOK)),
    (".gemini/extensions", _always(Kind.PLUGIN)),
)

LOOKED_FOR = (*(name for name, _ in _FILES), *(name for name, _ in _FOLDERS), WORKFLOWS, TOOLS, ".atomic/config.toml")


def _agents(project: Path) -> Iterator[Found]:
    many = (os.path.realpath(Path.home()), os.path.realpath(project.anchor))  # they hold many projects
    for level, folder in enumerate(up_to_repository(project)):
        if level and os.path.realpath(folder) in many:
            return
        yield from _agents_at(Root.of_project(folder), "../" * level)
    if (main := main_checkout(project)) is not None:  # Claude Code takes its settings from there too
        prefix = f"{os.path.relpath(main, project)}/"
        found = _agents_at(Root.of_project(main), prefix)
        yield from ((item, file) for item, file in found if item.path.startswith(f"{prefix}.claude/"))


def _agents_at(root: Root, prefix: str) -> Iterator[Found]:
    named = ((root.read(name), judge) for name, judge in _FILES)
    below = ((file, judge) for folder, judge in _FOLDERS for file in root.walk(folder, skipping=()))
    scripts: dict[str, FoundFile] = {}
    for file, judge in (*named, *below):
        kinds = () if file is None else judge(file)
        if file is None or not kinds:
            continue
        yield from ((_item(kind, file, prefix), file) for kind in kinds)
        if not file.reason:
            scripts |= {script.name: script for script in named_files(root, file)}
    yield from ((_item(Kind.SCRIPT, script, prefix), script) for script in scripts.values())
