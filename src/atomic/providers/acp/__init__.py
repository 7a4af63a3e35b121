"""The adapter for any agent that implements the Agent Client Protocol (ACP)."""
