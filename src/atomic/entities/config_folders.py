"""The folders and files in which commands, skills and agents are searched, also those of
the plugins that the user has installed in Claude Code.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import msgspec

from atomic.base.errors import AtomicError, did_you_mean
from atomic.base.files import AnyPath
from atomic.base.formats import parse_jsonc
from atomic.base.untrusted_files import read_bounded
from atomic.config import config_home, find_project
from atomic.config.known_agents import OPENCODE_CONFIGS
from atomic.entities.model import EntityKind, Location, Provider

_COMMAND = EntityKind.COMMAND
_SKILL = EntityKind.SKILL
_AGENT = EntityKind.AGENT
BUILTIN = Path(__file__).parent / "builtin"


class Pattern(StrEnum):
    """The files below a folder that are read."""

    FILES = "*.md"
    TREE = "**/*.md"
    PROMPTS = "*.prompt.md"
    SKILLS = "*/SKILL.md"
    SKILL_TREE = "**/SKILL.md"


class Place(msgspec.Struct, frozen=True):
    """A folder with definitions of one kind.

    No link is followed out of `root`, whose own path has no links.
    """

    provider: Provider
    location: Location
    root: str
    folder: str
    kind: EntityKind
    pattern: Pattern
    prefix: str = ""  # of all names: a plugin, with a colon


class ConfigPlace(msgspec.Struct, frozen=True):
    """A configuration file of OpenCode; its `{file:…}` may name files below `files`."""

    location: Location
    root: str
    path: str
    files: str
    provider: Provider = Provider.OPENCODE


AnyPlace = Place | ConfigPlace

# Below the folder of each provider. OpenCode and Copilot read nested skills, Claude
# does not.
_CLAUDE = (
    ("commands", _COMMAND, Pattern.TREE),
    ("skills", _SKILL, Pattern.SKILLS),
    ("agents", _AGENT, Pattern.TREE),
)
_OPENCODE = (
    ("command", _COMMAND, Pattern.TREE),
    ("commands", _COMMAND, Pattern.TREE),
    ("skill", _SKILL, Pattern.SKILL_TREE),
    ("skills", _SKILL, Pattern.SKILL_TREE),
    ("agent", _AGENT, Pattern.TREE),
    ("agents", _AGENT, Pattern.TREE),
    ("mode", _AGENT, Pattern.FILES),
    ("modes", _AGENT, Pattern.FILES),
)
_COPILOT = (
    ("prompts", _COMMAND, Pattern.PROMPTS),
    ("skills", _SKILL, Pattern.SKILL_TREE),
    ("agents", _AGENT, Pattern.TREE),
)
_PLUGIN = (("skills", _SKILL, Pattern.SKILLS),)
_ATOMIC = _CLAUDE
_AGENTS = (("skills", _SKILL, Pattern.SKILLS),)

Table = tuple[tuple[str, EntityKind, Pattern], ...]


class _Base(msgspec.Struct, frozen=True):
    """A folder of one provider, and the table of what is in it."""

    provider: Provider
    folder: str
    table: Table


def places_of(
    project: AnyPath | None = None, user: AnyPath | None = None, providers: Iterable[Provider | str] | None = None
) -> list[AnyPlace]:
    """Return all places to search, whether they exist or not.

    The home folder is not a project, so it has only places of the user.
    """
    wanted = set(Provider) if providers is None else {_provider(provider) for provider in providers}
    home = os.path.abspath(Path.home() if user is None else user)
    folder = find_project() if project is None else Path(os.path.abspath(project))
    builtin = _Base(Provider.ATOMIC, str(BUILTIN), _ATOMIC)
    found = [*_user(home, with_environment=user is None), *_below(builtin, Location.BUILTIN, str(BUILTIN))]
    if folder is not None and os.path.realpath(folder) != os.path.realpath(home):
        found[:0] = _project(str(folder))
    claude = _claude_folder(home, with_environment=user is None)
    for plugin in find_plugins(Path(claude), folder):
        prefix = f"{plugin.name}:"
        found += [
            Place(Provider.CLAUDE, Location.USER, plugin.folder, f"{plugin.folder}/{name}", kind, pattern, prefix)
            for name, kind, pattern in _PLUGIN
        ]
    return [place for place in found if place.provider in wanted or place.location is Location.BUILTIN]


def _provider(name: str) -> Provider:
    """Return the provider of a name. Raises AtomicError with the known names."""
    if name not in {provider.value for provider in Provider}:
        hint = did_you_mean(str(name), Provider)
        raise AtomicError(f'Unknown provider "{name}"{hint}; there are {", ".join(Provider)}')
    return Provider(name)


def _project(folder: str) -> Iterator[AnyPlace]:
    bases = (
        _Base(Provider.ATOMIC, f"{folder}/.atomic", _ATOMIC),
        _Base(Provider.ATOMIC, f"{folder}/.agents", _AGENTS),
        _Base(Provider.CLAUDE, f"{folder}/.claude", _CLAUDE),
        _Base(Provider.OPENCODE, f"{folder}/.opencode", _OPENCODE),
        _Base(Provider.COPILOT, f"{folder}/.github", _COPILOT),
    )
    for base in bases:
        yield from _below(base, Location.PROJECT, folder)
    real = os.path.realpath(folder)
    for parent in (folder, f"{folder}/.opencode"):
        for name in OPENCODE_CONFIGS:
            yield ConfigPlace(Location.PROJECT, real, f"{parent}/{name}", files=real)


def _user(home: str, *, with_environment: bool) -> Iterator[AnyPlace]:
    environment: Mapping[str, str] = os.environ if with_environment else {}

    def folder(variable: str, default: str) -> str:
        chosen = environment.get(variable)
        return os.path.abspath(os.path.expanduser(chosen)) if chosen else f"{home}/{default}"

    opencode = (f"{folder('XDG_CONFIG_HOME', '.config')}/opencode", f"{home}/.opencode")
    bases = (
        _Base(Provider.ATOMIC, str(config_home()) if with_environment else f"{home}/.atomic", _ATOMIC),
        _Base(Provider.ATOMIC, f"{home}/.agents", _AGENTS),
        _Base(Provider.CLAUDE, _claude_folder(home, with_environment=with_environment), _CLAUDE),
        *(_Base(Provider.OPENCODE, each, _OPENCODE) for each in opencode),
        _Base(Provider.COPILOT, folder("COPILOT_HOME", ".copilot"), _COPILOT),
    )
    for base in bases:
        yield from _below(base, Location.USER, _root(base.folder, home))
    for parent in opencode:
        for name in OPENCODE_CONFIGS:
            root = os.path.realpath(_root(parent, home))
            yield ConfigPlace(Location.USER, root, f"{parent}/{name}", files=os.path.realpath(parent))


def _claude_folder(home: str, *, with_environment: bool) -> str:
    chosen = os.environ.get("CLAUDE_CONFIG_DIR") if with_environment else None
    return os.path.abspath(os.path.expanduser(chosen)) if chosen else f"{home}/.claude"


def _below(base: _Base, location: Location, root: str) -> Iterator[Place]:
    root = os.path.realpath(root)
    for name, kind, pattern in base.table:
        yield Place(base.provider, location, root, f"{base.folder}/{name}", kind, pattern)


def _root(folder: str, home: str) -> str:
    """Return the folder that links must not leave: home, or a folder chosen elsewhere."""
    return home if folder.startswith(f"{home.rstrip('/')}/") else folder


class Plugin(msgspec.Struct, frozen=True):
    """A plugin of Claude Code that is on. `folder` is its real path."""

    name: str
    folder: str


def find_plugins(claude: Path, project: Path | None) -> Iterator[Plugin]:
    """Yield the plugins of Claude Code that the user has installed, for every project or
    for this one.

    `claude` is its folder, usually `~/.claude`. `plugins/installed_plugins.json` lists
    them, each with the folder that has its files, and `enabledPlugins` of the settings
    switches them on. Only plugins below `claude` are used, so a project cannot name one.
    """
    installed = _table(_read(claude / "plugins" / "installed_plugins.json").get("plugins"))
    if not installed:
        return
    own = claude.resolve() / "plugins"
    switches = [claude / "settings.json"]
    if project is not None:
        switches += [project / ".claude" / "settings.json", project / ".claude" / "settings.local.json"]
    # A later file overrides an earlier one. Only the user's list above says what is installed.
    enabled: dict[str, Any] = {}
    for file in switches:
        enabled |= _table(_read(file).get("enabledPlugins"))
    for id, installations in installed.items():
        if enabled.get(id) is not True or not isinstance(installations, list):
            continue
        for installation in map(_table, cast("list[object]", installations)):
            folder = os.path.realpath(str(installation.get("installPath") or ""))
            if _is_for(installation, project) and Path(folder).is_relative_to(own):
                yield Plugin(id.partition("@")[0], folder)
                break


def _is_for(installation: Mapping[str, Any], project: Path | None) -> bool:
    if installation.get("scope") in ("user", "managed"):
        return True
    path = installation.get("projectPath")
    return isinstance(path, str) and project is not None and os.path.realpath(path) == os.path.realpath(project)


def _read(file: Path) -> Mapping[str, Any]:
    """Return the object in a file; empty if it cannot be read, which Claude Code reports."""
    try:
        return parse_jsonc(read_bounded(file).decode("utf-8-sig"))
    except (OSError, ValueError):
        return {}


def _table(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
