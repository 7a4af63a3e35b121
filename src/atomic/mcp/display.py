"""Show a server's command and address without secrets."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from atomic.base.redaction import MARK, Redactor, is_secret
from atomic.mcp.model import McpEntry


def shown_command(entry: McpEntry) -> tuple[str, ...]:
    """Return the words of the command without the values of flags like `--api-key`."""
    redactor, words = _redactor(entry), list[str]()
    secret_next = False
    for word in entry.command:
        words.append(MARK if secret_next and not word.startswith("-") else _word(word, redactor))
        secret_next = word.startswith("-") and "=" not in word and is_secret(word)
    return tuple(words)


def shown_url(entry: McpEntry) -> str | None:
    """Return the address without its query, which may hold tokens."""
    if entry.url is None:
        return None
    try:
        parts = urlsplit(entry.url)
    except ValueError:  # not an address: it may be a secret
        return MARK
    host = parts.netloc.rpartition("@")[2]
    return _redactor(entry).text(urlunsplit((parts.scheme, host, parts.path, MARK if parts.query else "", "")))


def _word(word: str, redactor: Redactor) -> str:
    name, equals, _ = word.partition("=")
    return f"{name}={MARK}" if equals and is_secret(name) else redactor.text(word)


def _redactor(entry: McpEntry) -> Redactor:
    return Redactor.of_environment(entry.env, headers=[entry.headers])
