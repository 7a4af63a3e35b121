"""The screen: shows state and sends intents, decides nothing. Why it is three processes: docs/decisions/0012-tui.md."""
