"""List how a known secret may be written: plain, in JSON, URLs, HTML, shells, code,
hex, base64.
"""

from __future__ import annotations

import html
import json
import re
import shlex
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

MARK = "[redacted]"
SHORTEST = 8  # characters; a shorter value would be found in the middle of ordinary words

_ESCAPE = re.compile(r"%[0-9A-F]{2}")


def lines_of(secret: str) -> Iterator[str]:
    """Yield the lines of a secret that are long enough to search for."""
    for line in secret.splitlines():
        plain = line.strip()
        if len(plain) >= SHORTEST and plain not in MARK:
            yield plain


def spellings(lines: Iterable[str]) -> set[str]:
    """Return each line in all spellings to search for."""
    found: set[str] = set()
    for line in lines:
        found.add(line)
        found.update(_in_json(line))
        found.update(_in_addresses(line))
        found.update((html.escape(line), html.escape(line, quote=False), html.escape(line).replace("&#x27;", "&#39;")))
        found.update((shlex.quote(line).strip("'"), line.replace("'", "'\\''"), repr(line)[1:-1]))
        encoded = line.encode("utf-8", "replace").hex()
        found.update((encoded, encoded.upper(), *in_base64(line)))
    return {one for one in found if len(one) >= SHORTEST}


def _in_json(line: str) -> Iterator[str]:
    """Yield a line in JSON, and in JSON inside JSON; some programs write a slash as `\\/`."""
    for ascii_only in (True, False):
        once = json.dumps(line, ensure_ascii=ascii_only)[1:-1]
        twice = json.dumps(once, ensure_ascii=ascii_only)[1:-1]
        yield from (once, twice, once.replace("/", "\\/"), twice.replace("/", "\\\\\\/"))


def _in_addresses(line: str) -> Iterator[str]:
    for way in (
        quote(line, safe="", errors="replace"),
        quote(line, errors="replace"),  # which leaves slashes
        quote_plus(line, errors="replace"),
    ):
        yield way
        yield _ESCAPE.sub(lambda found: found[0].lower(), way)


def in_base64(secret: str) -> Iterator[str]:
    """Yield the base64 of a secret inside a longer text, for each of three offsets."""
    data = secret.encode("utf-8", "replace")
    for before in range(3):
        for encode in (b64encode, urlsafe_b64encode):
            encoded = encode(bytes(before) + data).decode().rstrip("=")
            # The letters at both ends also depend on the text before and after.
            first = (0, 2, 3)[before]
            left = (before + len(data)) % 3
            inner = encoded[first : len(encoded) - 1 if left else len(encoded)]
            if len(inner) >= SHORTEST:
                yield inner
