"""The MCP servers that the user's tools know, read from every tool's own files into one list.

Nothing here starts a server. A project's entries come from strangers: `McpEntry.needs_trust` says so, and a session
may use them only in a trusted project.
"""

from atomic.mcp.errors import McpStateError, McpVariableError
from atomic.mcp.loading import load_mcp_entries
from atomic.mcp.model import Location, McpDiagnostic, McpEntry, McpList, Origin, Transport
from atomic.mcp.state import set_enabled

__all__ = [
    "Location",
    "McpDiagnostic",
    "McpEntry",
    "McpList",
    "McpStateError",
    "McpVariableError",
    "Origin",
    "Transport",
    "load_mcp_entries",
    "set_enabled",
]
