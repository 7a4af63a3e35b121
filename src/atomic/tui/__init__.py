"""The Textual screen: shows state, sends intents and decides nothing.

Start reading at `main.py` (the process), then `app.py` (the app) and `state/store.py`
(its state). The conversation itself runs in another process; see `atomic.chat`.
docs/decisions/0012-tui.md explains why there are three processes.

Public modules: `driver`, `main`, `screen`, `supervisor`.
"""
