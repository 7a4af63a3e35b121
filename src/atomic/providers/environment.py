"""The environment of the programs that Atomic starts: the user's, without secrets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from atomic.redact import is_secret_variable


def child_environment(
    own: Iterable[str] = (),
    *,
    passed: Iterable[str] = (),
    extra: Mapping[str, str] | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the user's variables without those that hold secrets (`redact.is_secret_variable`).

    `own`: names that belong to the agent and are kept, a prefix where one ends with `_`; `passed`: more names to keep,
    from the user's settings (`[env] pass`); `extra`: set as they are. Checks and MCP servers own nothing.
    """
    own, base = tuple(own), os.environ if base is None else base
    allowed = {*passed, *(name for name in own if not name.endswith("_"))}
    prefixes = tuple(name for name in own if name.endswith("_"))
    kept = {
        name: value
        for name, value in base.items()
        if name in allowed or name.startswith(prefixes) or not is_secret_variable(name, value)
    }
    return {**kept, **(extra or {})}
