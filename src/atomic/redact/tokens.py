"""Tokens of well-known services, known by their form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

Span = tuple[int, int]

_EDGE = r"(?<![A-Za-z0-9])"
_TOKENS: tuple[tuple[tuple[str, ...], str], ...] = (  # a hint must be in the text, or the pattern need not be tried
    (("sk-ant-",), _EDGE + r"(sk-ant-[A-Za-z0-9_-]{8,})"),
    (("sk-",), _EDGE + r"(sk-(?:[A-Za-z0-9]{16,}|(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{16,}))"),
    (("gh",), _EDGE + r"(gh[pousr]_[A-Za-z0-9]{16,})"),
    (("github_pat_",), _EDGE + r"(github_pat_[A-Za-z0-9_]{16,})"),
    (("glpat-",), _EDGE + r"(glpat-[A-Za-z0-9_-]{16,})"),
    (("AKIA", "ASIA"), _EDGE + r"((?:AKIA|ASIA)[0-9A-Z]{16})(?![A-Za-z0-9])"),
    (("xox",), _EDGE + r"(xox[abeprs]-[A-Za-z0-9-]{10,})"),
    (("AIza",), _EDGE + r"(AIza[0-9A-Za-z_-]{30,})"),
    (("hf_",), _EDGE + r"(hf_[A-Za-z0-9]{30,})"),
    (("npm_",), _EDGE + r"(npm_[A-Za-z0-9]{30,})"),
    (("pypi-",), _EDGE + r"(pypi-[A-Za-z0-9_-]{32,})"),
    (("eyJ",), _EDGE + r"(eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"),
    (("earer", "EARER"), r"(?i:bearer)[ \t]+((?=[A-Za-z._~+/=-]{0,64}[0-9]|\S{20})[A-Za-z0-9._~+/=-]{8,})"),
    (("asic", "ASIC"), r"(?i:authorization)\W{1,4}(?i:basic)[ \t]+([A-Za-z0-9+/=]{8,})"),
    (("://",), r"://[^\s/:@\"'<>]{0,64}:([^\s/@\"'<>]{3,256})@"),
)


def tokens(text: str) -> Iterator[Span]:
    """Yield where tokens of known services are."""
    for hints, pattern in _TOKENS:
        if any(hint in text for hint in hints):
            for match in _compiled(pattern).finditer(text):
                yield match.span(1)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiled when it is first needed, which most of them never are."""
    return re.compile(pattern)
