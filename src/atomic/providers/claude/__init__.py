"""Claude Code, driven over its standard input and output."""
