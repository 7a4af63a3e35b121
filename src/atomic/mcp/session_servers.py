"""Choose the servers that Atomic hands to a session, and those that the session must not use. Pure.

An agent reads its own tool's files itself, as it does without Atomic. Atomic adds its own servers and those of other
tools that the user switched on. All others would cost time and tokens that the user did not ask for.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atomic.mcp.model import McpEntry, McpList, Origin, Transport


class ForSession(msgspec.Struct, frozen=True):
    """The servers to hand over, and the names of those that the session must not have."""

    passed: Sequence[McpEntry]
    off: Sequence[str]
    own_off: Sequence[str]  # those of `off` that the agent would load by itself
    own: Sequence[McpEntry] = ()  # programs of the user that the agent starts by itself, in the folder that it works in


def for_session(found: McpList, agent: str, *, trusted: bool) -> ForSession:
    """Return the servers for a session of an agent (`claude`, `acp:opencode`, ...)."""
    passed = [entry for entry in found.usable(trusted=trusted) if _is_passed(entry, agent)]
    off = [entry for entry in found.entries if entry.chosen is False]
    own_off = [entry for entry in off if _loads(agent, entry) and (trusted or not entry.needs_trust)]
    own = [entry for entry in found.usable(trusted=trusted) if _starts(agent, entry)]
    return ForSession(passed, _names(off), _names(own_off), own)


def _is_passed(entry: McpEntry, agent: str) -> bool:
    return entry.origin is Origin.ATOMIC or (entry.chosen is True and not _loads(agent, entry))


def _loads(agent: str, entry: McpEntry) -> bool:
    """Return whether the agent would load the server by itself."""
    return entry.origin == agent.removeprefix("acp:") and entry.on_in_file


def _starts(agent: str, entry: McpEntry) -> bool:
    return _loads(agent, entry) and not entry.needs_trust and entry.transport is Transport.STDIO


def _names(entries: Sequence[McpEntry]) -> list[str]:
    return list(dict.fromkeys(entry.name for entry in entries))
