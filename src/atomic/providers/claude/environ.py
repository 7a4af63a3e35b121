"""The program's whole environment: the user's, less the secrets of others and what an outer Claude Code left in it."""

from __future__ import annotations

import os

from atomic.config import Settings
from atomic.providers.base import SessionOptions
from atomic.providers.environment import child_environment

PROVIDER = "claude"

_OWN = ("ANTHROPIC_", "CLAUDE_", "DISABLE_", "IS_SANDBOX")
# What Claude Code sets for its own children. Atomic may be one of them: the agent is not to take it for its own.
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
    """What the program gets. As root that has IS_SANDBOX in it, or it would not let all tools run."""
    given = _given(settings, options or SessionOptions())
    return {**given, "IS_SANDBOX": "1"} if _needs_sandbox_word(given) else given


def adds_sandbox_word(settings: Settings, options: SessionOptions) -> bool:
    """Whether IS_SANDBOX is our word and not the user's."""
    return _needs_sandbox_word(_given(settings, options))


def _needs_sandbox_word(env: dict[str, str]) -> bool:
    return os.geteuid() == 0 and env.get("IS_SANDBOX") != "1"  # to the program anything else says nothing


def _given(settings: Settings, options: SessionOptions) -> dict[str, str]:
    own = {
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",  # as a program that reads and writes JSON, it makes no title
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",  # a turn's end is known by them
        **({"PWD": os.path.abspath(options.cwd)} if options.cwd is not None else {}),
    }
    return child_environment(
        _OWN,
        passed=settings.env.pass_,
        extra={**own, **settings.provider(PROVIDER).env, **(options.env or {})},
        base={name: value for name, value in os.environ.items() if name not in _OUTER},
    )
