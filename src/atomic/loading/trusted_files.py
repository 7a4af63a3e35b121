"""Find everything in a project that could run code.

That is what Atomic runs itself (workflows, tools, the set-up of workspaces, checks) and
what agents run without asking (hooks, MCP servers, plugins and the scripts that they
name). Files of agents are searched where agents search them: in the project's folder
and above it, up to the root of its repository.
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

from atomic.base.formats import parse_jsonc, parse_toml
from atomic.base.untrusted_files import FoundFile, Root
from atomic.config import atomic_home, config_home, main_checkout, up_to_repository
from atomic.entities.registry import find_covering
from atomic.loading.named_files import named_files
from atomic.loading.project_check import find_check

WORKFLOWS = ".atomic/workflows"
TOOLS = ".atomic/tools"
SETUP = ".atomic/workspace-setup"


class Kind(StrEnum):
    """The kinds of items."""

    WORKFLOW = "workflow"
    TOOL = "tool"
    SETUP = "workspace-setup"
    GATE = "gate"
    MCP = "mcp"
    HOOK = "hook"
    PLUGIN = "plugin"
    SETTINGS = "settings"  # settings of an agent that could run something
    SCRIPT = "script"  # a file of the project that an agent's settings name
    ENTITY = "entity"  # a sub-agent, skill or command that replaces a built-in one


class Item(msgspec.Struct, frozen=True):
    """Something that could run. `text` is shown to the user who decides about it."""

    kind: Kind
    path: str  # from the project's folder
    sha256: str
    text: str = ""
    reason: str = ""  # why its content could not be read

    @property
    def key(self) -> str:
        """Return a key that does not depend on the content.

        Checks differ by their commands.
        """
        return item_key(self.kind, self.path, self.sha256)

    @property
    def blocks(self) -> bool:
        """Return whether it cannot be approved: an agent might read what Atomic could
        not.
        """
        return bool(self.reason) and self.kind not in (Kind.WORKFLOW, Kind.TOOL)


def item_key(kind: str, path: str, sha256: str) -> str:
    return f"{kind} {path} {sha256}" if kind == Kind.GATE else f"{kind} {path}"


class Executables(msgspec.Struct, frozen=True):
    """The items of a project, and the bytes of what Atomic runs itself, by path."""

    items: tuple[Item, ...] = ()
    files: Mapping[str, bytes] = {}
    refused: Mapping[str, str] = {}  # files that were not read, and why


def find_executables(project: Path) -> Executables:
    """Return everything in a project that could run.

    Nothing for the user's home folder.
    """
    if is_home(project):
        return Executables()
    root = Root.of_project(project)
    own = () if has_users_folder(project) else _files_of_atomic(root)
    found = [*own, *_files_of_agents(project), *_replacing_entities(root)]
    ours = [(item, file) for item, file in found if item.kind in (Kind.WORKFLOW, Kind.TOOL, Kind.SETUP)]
    return Executables(
        tuple(sorted((item for item, _ in found), key=lambda item: (item.path, item.kind, item.sha256))),
        {file.name: file.data for _, file in ours if not file.reason},
        {file.name: file.reason for _, file in ours if file.reason},
    )


def is_home(folder: Path) -> bool:
    """Return whether a folder is the user's home, whose files need no trust."""
    return os.path.realpath(folder) == os.path.realpath(Path.home())


def has_users_folder(project: Path) -> bool:
    """Return whether the project's `.atomic` is the user's own folder (`$ATOMIC_HOME`)."""
    return os.path.realpath(project / ".atomic") in map(os.path.realpath, (config_home(), atomic_home()))


def agent_files(folder: Path) -> list[Item]:
    """Return what agents would run in one folder, without the folders above it."""
    return [item for item, _ in _files_of_agents_in(Root.of_project(folder), "")]


_Found = tuple[Item, FoundFile]


def shown_path(name: str) -> str:
    """Return a path as valid text; bytes that are not UTF-8 are escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _item(kind: Kind, file: FoundFile, prefix: str = "") -> Item:
    path = shown_path(f"{prefix}{file.name}")
    if file.reason:
        return Item(kind, path, sha256(f"not read: {file.reason}".encode()).hexdigest(), reason=file.reason)
    return Item(kind, path, sha256(file.data).hexdigest(), file.data.decode("utf-8", "replace"))


def _files_of_atomic(root: Root) -> Iterator[_Found]:
    for kind, folder in ((Kind.WORKFLOW, WORKFLOWS), (Kind.TOOL, TOOLS)):
        for file in root.walk(folder):
            if file.reason or file.name.endswith(".py"):
                yield _item(kind, file), file
    setup = root.read(SETUP)
    if setup is not None:
        yield _item(Kind.SETUP, setup), setup
    yield from _configured_checks(root)
    found = find_check(Path(root.folder))
    origin = None if found is None else root.read(found.origin)
    if found is not None and origin is not None:
        yield _check(origin, found.command), origin


def _configured_checks(root: Root) -> Iterator[_Found]:
    """Yield the commands of `verify` in the project's configuration."""
    file = root.read(".atomic/config.toml")
    if file is None:
        return
    try:
        data: Any = parse_toml(file.data.decode())
    except (ValueError, RecursionError):  # the reader of the settings reports the error
        return
    for table in _table(data.get("workflows")).values():
        verify: object = _table(table).get("verify")
        commands = cast("list[object]", verify) if isinstance(verify, list) else [verify]
        for command in commands:
            if isinstance(command, str):
                yield _check(file, command), file
            elif command is not None:
                yield _check(file, msgspec.json.encode(command, enc_hook=str).decode()), file


def _check(file: FoundFile, command: str) -> Item:
    """Return a check as an item.

    Its command is hashed, not the files that the command uses.
    """
    text = command.encode("utf-8", "replace").decode()
    return Item(Kind.GATE, file.name, sha256(text.encode()).hexdigest(), text)


def _table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _replacing_entities(root: Root) -> Iterator[_Found]:
    """Yield the files that replace built-in sub-agents and skills: agents work and
    review with their text.
    """
    paths = {os.path.relpath(entity.source.path, root.folder) for entity in find_covering(root.folder)}
    for path in sorted(paths):
        file = root.read(path)
        if file is not None:
            yield _item(Kind.ENTITY, file), file


# Returns the kinds of items that a file is; none if it can run nothing.
_Judge = Callable[[FoundFile], Sequence[Kind]]


def _always(kind: Kind) -> _Judge:
    return lambda file: (kind,)


def _by_key(keys: Mapping[str, Kind], harmless: frozenset[str] | None = None) -> _Judge:
    """Judge a JSON object by its keys that have a value.

    A file is at least settings, unless all its keys are `harmless`. So is a file that
    cannot be parsed here, because the agent may be able to parse it.
    """

    def judge(file: FoundFile) -> Sequence[Kind]:
        try:
            text = file.data.decode("utf-8-sig")
            data = parse_jsonc(text) if text.strip() else {}
        except (ValueError, RecursionError):
            return (Kind.SETTINGS,)
        used = {key for key, value in data.items() if value}
        found = tuple(dict.fromkeys(keys[key] for key in sorted(used) if key in keys))
        if found or (harmless is not None and not file.reason and used <= harmless):
            return found
        return (Kind.SETTINGS,)

    return judge


_HINT = re.compile(rb"\\|mcp|hook", re.IGNORECASE)


def _if_it_mentions_hooks(file: FoundFile) -> Sequence[Kind]:
    """Judge Markdown: it counts if it mentions servers or hooks.

    So does a file with a backslash, because an escape can hide such a word.
    """
    return (Kind.HOOK,) if file.reason or _HINT.search(file.data) else ()


_CLAUDE = _by_key({"hooks": Kind.HOOK})
_OPENCODE = _by_key(
    {"mcp": Kind.MCP, "plugin": Kind.PLUGIN, "plugins": Kind.PLUGIN},
    frozenset({"$schema", "model", "small_model", "theme", "keybinds", "username", "share", "autoupdate"}),
)
_FILES: Sequence[tuple[str, _Judge]] = (
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
_FOLDERS: Sequence[tuple[str, _Judge]] = (
    (".claude/hooks", _always(Kind.HOOK)),
    (".claude/agents", _if_it_mentions_hooks),
    (".claude/skills", _if_it_mentions_hooks),
    (".claude/commands", _if_it_mentions_hooks),
    (".opencode/plugin", _always(Kind.PLUGIN)),
    (".opencode/plugins", _always(Kind.PLUGIN)),
    (".opencode/tool", _always(Kind.PLUGIN)),
    (".opencode/tools", _always(Kind.PLUGIN)),
    (".github/hooks", _always(Kind.HOOK)),
    (".github/extensions", _always(Kind.PLUGIN)),
    (".github/agents", _if_it_mentions_hooks),
    (".codex/hooks", _always(Kind.HOOK)),
    (".gemini/hooks", _always(Kind.HOOK)),
    (".gemini/extensions", _always(Kind.PLUGIN)),
)

LOOKED_FOR = (*(name for name, _ in _FILES), *(name for name, _ in _FOLDERS), WORKFLOWS, TOOLS, ".atomic/config.toml")


def _files_of_agents(project: Path) -> Iterator[_Found]:
    """Yield what agents would run in a project, in the folders above it and in its main
    checkout.
    """
    shared = (os.path.realpath(Path.home()), os.path.realpath(project.anchor))  # they contain many projects
    for level, folder in enumerate(up_to_repository(project)):
        if level and os.path.realpath(folder) in shared:
            return
        yield from _files_of_agents_in(Root.of_project(folder), "../" * level)
    main = main_checkout(project)
    if main is not None:  # Claude Code also takes its settings from there
        prefix = f"{os.path.relpath(main, project)}/"
        found = _files_of_agents_in(Root.of_project(main), prefix)
        yield from ((item, file) for item, file in found if item.path.startswith(f"{prefix}.claude/"))


def _files_of_agents_in(root: Root, prefix: str) -> Iterator[_Found]:
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
