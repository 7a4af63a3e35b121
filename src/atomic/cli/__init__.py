"""The `atomic` command.

Every start pays for what it imports: `--version` and `--help` need nothing but these modules, and an agent's SDK is
imported only to use that agent.
"""
