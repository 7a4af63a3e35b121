"""The adapter for Claude Code, over its standard input and output."""
