"""The screen in a browser on this machine. Start with `command.py`.

Public modules: `command`.
"""
