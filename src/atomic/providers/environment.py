"""Build the environment of programs that Atomic starts: the user's, without secrets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from atomic.base.redaction import is_secret_variable
from atomic.config import Settings

# Of a check. No Python caches, which could hide a change, and no packages that agents may
# have installed for the user.
CHECK_VARIABLES = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1"}

# Variables that name a repository. Git sets them for its hooks; with them, an agent
# would use another repository than Atomic.
GIT_VARIABLES = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_QUARANTINE_PATH",
        "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)


def base_environment(settings: Settings) -> Mapping[str, str]:
    """Return the variables from which those of an agent's program are chosen."""
    return os.environ if settings.env.base is None else settings.env.base


def child_environment(
    own: Iterable[str] = (),
    *,
    passed: Iterable[str] = (),
    extra: Mapping[str, str] | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the user's variables without secrets and without `GIT_VARIABLES`.

    `own` are names that the agent needs; one that ends with `_` is a prefix. `passed`
    are names that the user's settings keep (`[env] pass`, `[checks] env`). `extra` are
    set as given. Checks and MCP servers have no `own` names.
    """
    own = tuple(own)
    passed = frozenset(passed)
    if base is None:
        base = os.environ
    names = {name for name in own if not name.endswith("_")}
    prefixes = tuple(name for name in own if name.endswith("_"))

    def is_kept(name: str, value: str) -> bool:
        if name in passed:
            return True
        if name in GIT_VARIABLES:
            return False
        return name in names or name.startswith(prefixes) or not is_secret_variable(name, value)

    kept = {name: value for name, value in base.items() if is_kept(name, value)}
    return {**kept, **(extra or {})}
