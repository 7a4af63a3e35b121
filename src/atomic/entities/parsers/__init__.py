"""Text in, entity out: one module for each provider's format. Nothing here touches the disk."""

from atomic.entities.parsers import atomic, claude, copilot, opencode
from atomic.entities.parsers.document import Document

__all__ = ["Document", "atomic", "claude", "copilot", "opencode"]
