"""The engine of a screen, in a process of its own: the conversation, its commands, and the runs beside it."""
