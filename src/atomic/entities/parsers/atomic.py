"""Atomic's own format, also that of the built-in ones: Claude's fields, with arguments that count from 1."""

from __future__ import annotations

from atomic.entities.parsers.claude import parse

__all__ = ["parse"]
