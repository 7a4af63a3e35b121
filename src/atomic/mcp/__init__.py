"""The MCP servers that the user's tools know, read from every tool's own files into one list.

A project's entries come from strangers: `McpEntry.needs_trust` says so, and a session may use them only in a trusted
project. `for_session` tells which servers Atomic hands to a session. Only `atomic.mcp.asking` starts a server; it is
not part of this door, because who lists servers need not pay for it.
"""

from atomic.mcp.errors import McpStateError, McpVariableError
from atomic.mcp.loading import load_mcp_entries
from atomic.mcp.model import Location, McpAnswer, McpDiagnostic, McpEntry, McpList, Origin, Transport
from atomic.mcp.sessions import ForSession, for_session
from atomic.mcp.state import set_enabled

__all__ = [
    "ForSession",
    "Location",
    "McpAnswer",
    "McpDiagnostic",
    "McpEntry",
    "McpList",
    "McpStateError",
    "McpVariableError",
    "Origin",
    "Transport",
    "for_session",
    "load_mcp_entries",
    "set_enabled",
]
