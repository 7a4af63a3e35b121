"""The environment of Copilot's program."""

from __future__ import annotations

from collections.abc import Mapping

from atomic.config import Settings
from atomic.providers.environment import child_environment

_OWN = ("COPILOT_", "GH_", "GITHUB_")
# It makes Copilot trust its working folder; all tools are allowed in any case.
_NOT_PASSED = ("COPILOT_ALLOW_ALL",)


def environment(settings: Settings, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of Copilot's program."""
    own = settings.provider("copilot").env
    env = child_environment(_OWN, passed=settings.env.pass_, extra={**own, **(extra or {})})
    return {name: value for name, value in env.items() if name not in _NOT_PASSED}
