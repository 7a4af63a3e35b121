"""The MCP servers in the configurations of the user's tools, as one list.

Start reading with `loader.py`. A project's entries are untrusted:
`McpEntry.needs_trust` is true for them, and a session may use them only in a trusted
project. `for_session` decides which servers Atomic hands to a session. Only
`atomic.mcp.tool_queries` starts servers; it is not exported here, so that listing
servers does not import it.

Public modules: `tool_queries`.
"""

from atomic.mcp.dialects import opencode_servers
from atomic.mcp.loader import load_mcp_entries
from atomic.mcp.model import Location, McpAnswer, McpDiagnostic, McpEntry, McpList, McpVariableError, Origin, Transport
from atomic.mcp.session_servers import ForSession, for_session, names_current_folder, started_in, with_variables
from atomic.mcp.state import McpStateError, set_enabled

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
    "names_current_folder",
    "opencode_servers",
    "set_enabled",
    "started_in",
    "with_variables",
]
