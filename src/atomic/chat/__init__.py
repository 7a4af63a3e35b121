"""A conversation without a screen, in a process of its own.

The screen, `atomic --plain` and the browser use it: they send intents and receive
events (`protocol.py`) through `client.py`. In the engine's process `engine.py` receives
the intents; `conversation.py` talks to the agent, `workflows.py` follows runs of
workflows, `log.py` keeps the conversation on disk. The room knows no terminal. Start
with `protocol.py` and `engine.py`.

Public modules: `client`, `prompt_history`, `protocol`.
"""
