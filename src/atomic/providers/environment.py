"""What an agent's program may know: the user's environment without the secrets of others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from atomic.redact import is_secret


def child_environment(
    own: Iterable[str],
    *,
    passed: Iterable[str] = (),
    extra: Mapping[str, str] | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The user's variables but for what looks like a secret, with those that belong to the provider.

    `own`: the names that belong to it, a prefix where it ends with `_`; `passed`: more names, from `[env] pass` of the
    user's settings; `extra`: set as they are.
    """
    own, base = tuple(own), os.environ if base is None else base
    allowed = {*passed, *(name for name in own if not name.endswith("_"))}
    prefixes = tuple(name for name in own if name.endswith("_"))
    kept = {
        name: value
        for name, value in base.items()
        if not is_secret(name) or name in allowed or name.startswith(prefixes)
    }
    return {**kept, **(extra or {})}
