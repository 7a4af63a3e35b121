"""Atomic: the workflow layer for coding agents.

Workflow authors import `atomic.workflows`.
"""

import sys

__version__ = "0.2.0"

if sys.platform == "win32":
    raise ImportError("Atomic runs on Linux and macOS. On Windows, install it inside WSL: see docs/install.md")
