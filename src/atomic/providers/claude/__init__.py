"""Claude Code, driven through its own SDK."""
