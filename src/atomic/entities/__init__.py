"""Commands, skills and agents in the formats of all supported agents.

`EntityRegistry.load()` reads them from the folders of Atomic, Claude Code, OpenCode and
Copilot; `Entity.expand()` returns the prompt of one. Start reading with `registry.py`;
`discovery.py` is the only module here that walks folders.

Public modules: `registry`.
"""

from atomic.entities.model import (
    BodyError,
    Diagnostic,
    Entity,
    EntityKind,
    EntityNotFoundError,
    Location,
    Provider,
    Source,
)
from atomic.entities.normalize import KNOWN_TOOLS
from atomic.entities.registry import EntityRegistry

__all__ = [
    "KNOWN_TOOLS",
    "BodyError",
    "Diagnostic",
    "Entity",
    "EntityKind",
    "EntityNotFoundError",
    "EntityRegistry",
    "Location",
    "Provider",
    "Source",
]
