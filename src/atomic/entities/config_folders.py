"""The folders and files in which commands, skills and agents are searched."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from atomic.base.errors import AtomicError, did_you_mean
from atomic.base.files import AnyPath
from atomic.config import atomic_home, find_project
from atomic.entities.model import EntityKind, Location, Provider

_COMMAND = EntityKind.COMMAND
_SKILL = EntityKind.SKILL
_AGENT = EntityKind.AGENT
BUILTIN = Path(__file__).parent / "builtin"
CONFIGS = ("opencode.json", "opencode.jsonc")


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
        for name in CONFIGS:
            yield ConfigPlace(Location.PROJECT, real, f"{parent}/{name}", files=real)


def _user(home: str, *, with_environment: bool) -> Iterator[AnyPlace]:
    environment: Mapping[str, str] = os.environ if with_environment else {}

    def folder(variable: str, default: str) -> str:
        chosen = environment.get(variable)
        return os.path.abspath(os.path.expanduser(chosen)) if chosen else f"{home}/{default}"

    opencode = (f"{folder('XDG_CONFIG_HOME', '.config')}/opencode", f"{home}/.opencode")
    bases = (
        _Base(Provider.ATOMIC, str(atomic_home()) if with_environment else f"{home}/.atomic", _ATOMIC),
        _Base(Provider.ATOMIC, f"{home}/.agents", _AGENTS),
        _Base(Provider.CLAUDE, folder("CLAUDE_CONFIG_DIR", ".claude"), _CLAUDE),
        *(_Base(Provider.OPENCODE, each, _OPENCODE) for each in opencode),
        _Base(Provider.COPILOT, folder("COPILOT_HOME", ".copilot"), _COPILOT),
    )
    for base in bases:
        yield from _below(base, Location.USER, _root(base.folder, home))
    for parent in opencode:
        for name in CONFIGS:
            root = os.path.realpath(_root(parent, home))
            yield ConfigPlace(Location.USER, root, f"{parent}/{name}", files=os.path.realpath(parent))


def _below(base: _Base, location: Location, root: str) -> Iterator[Place]:
    root = os.path.realpath(root)
    for name, kind, pattern in base.table:
        yield Place(base.provider, location, root, f"{base.folder}/{name}", kind, pattern)


def _root(folder: str, home: str) -> str:
    """Return the folder that links must not leave: home, or a folder chosen elsewhere."""
    return home if folder.startswith(f"{home.rstrip('/')}/") else folder
