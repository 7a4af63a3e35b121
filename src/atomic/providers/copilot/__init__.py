"""The adapter for GitHub Copilot: the Copilot CLI as a server on its standard streams."""
