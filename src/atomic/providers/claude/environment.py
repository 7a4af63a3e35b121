"""The program's environment: the user's, without other secrets and an outer Claude
Code's.
"""

from __future__ import annotations

import os

from atomic.config import Settings
from atomic.providers.base import SessionOptions
from atomic.providers.environment import base_environment, child_environment

PROVIDER = "claude"

_OWN = ("ANTHROPIC_", "CLAUDE_", "DISABLE_", "IS_SANDBOX")
# Claude Code sets these for its children. Atomic may be one of them, and the agent must
# not inherit them.
_OUTER = frozenset(
    {
        "AI_AGENT",
        "CLAUDECODE",
        "CLAUDE_AGENT_SDK_DERIVED_CLIENT_APP",
        "CLAUDE_AGENT_SDK_VERSION",
        "CLAUDE_CODE_CHILD_SESSION",
        "CLAUDE_CODE_EXECPATH",
        "CLAUDE_CODE_MESSAGING_SOCKET",
        "CLAUDE_CODE_MESSAGING_TOKEN",
        "CLAUDE_CODE_SESSION_ATTENDED",
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_EFFORT",
        "CLAUDE_PID",
    }
)


def environment(settings: Settings, options: SessionOptions | None = None) -> dict[str, str]:
    """Return the program's environment; as root it includes IS_SANDBOX."""
    given = _given(settings, options or SessionOptions())
    return {**given, "IS_SANDBOX": "1"} if _needs_sandbox_variable(given) else given


def adds_sandbox_variable(settings: Settings, options: SessionOptions) -> bool:
    """Return whether Atomic, and not the user, sets IS_SANDBOX."""
    return _needs_sandbox_variable(_given(settings, options))


def _needs_sandbox_variable(env: dict[str, str]) -> bool:
    return os.geteuid() == 0 and env.get("IS_SANDBOX") != "1"  # the program ignores other values


def _given(settings: Settings, options: SessionOptions) -> dict[str, str]:
    own = {
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",  # without it the program generates a title
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",  # they mark the end of a turn
    }
    if options.cwd is not None:
        own["PWD"] = os.path.abspath(options.cwd)
    return child_environment(
        _OWN,
        passed=settings.env.pass_,
        extra={**own, **settings.provider(PROVIDER).env, **(options.env or {})},
        base={name: value for name, value in base_environment(settings).items() if name not in _OUTER},
    )
