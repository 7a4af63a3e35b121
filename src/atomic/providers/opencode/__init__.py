"""The adapter for OpenCode: one server on loopback for many sessions."""
