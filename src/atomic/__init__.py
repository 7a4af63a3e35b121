"""Atomic: the workflow layer for coding agents.

Workflow authors import `atomic.workflows`.
"""

__version__ = "0.2.0"
