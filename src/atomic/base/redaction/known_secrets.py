"""Decide which environment variables are secret, and list how a secret may be written.

A name is secret by a part of it: `DB_PASS`, `GITHUB_PAT`, `SENTRY_DSN`. A value is
secret by its form: an address with a password, a connection string with a key, a token
of a known service. A secret may be written plain, in JSON, URLs, HTML, shells, code, hex
and base64.
"""

from __future__ import annotations

import html
import json
import re
import shlex
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus, unquote

from atomic.base.redaction.tokens import tokens
from atomic.base.secret_mark import MARK

SHORTEST = 8  # characters; a shorter value would be found in the middle of ordinary words
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")  # anywhere in a name
# In the name before a sign in a text, such as `password = …`.
ASSIGNED_WORDS = (*SECRET_WORDS, "PASSWD", "PASSPHRASE", "PASS", "PWD", "JWT", "WEBHOOK")

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_PARTS = frozenset(
    {"AUTH", "COOKIE", "COOKIES", "CREDS", "DSN", "JWT", "PASS", "PASSPHRASE", "PASSWD", "PAT", "PWD"}
    | {"WEBHOOK", "WEBHOOKS"}
)
# Endings of one word: PGPASS, DBPASSWD.
_ENDINGS = ("PASS", "PASSWD", "PASSPHRASE")
_ORDINARY_PARTS = frozenset({"ASKPASS", "BYPASS", "COMPASS", "ENCOMPASS", "OVERPASS", "TRESPASS", "UNDERPASS"})
# Names that end like this describe a secret: COOKIE_DOMAIN, OS_AUTH_TYPE. SSH_AUTH_SOCK
# is the path of a socket, without which git over ssh would fail for users of an ssh
# agent.
_HARMLESS_ENDS = frozenset(
    {"AGE", "ALGORITHM", "AUDIENCE", "DISABLED", "DOMAIN", "ENABLED", "EXPIRES", "EXPIRY", "HOST", "ISSUER", "METHOD"}
    | {"MODE", "PORT", "PROVIDER", "SAMESITE", "SECURE", "SOCK", "TIMEOUT", "TTL", "TYPE"}
)
_ORDINARY_NAMES = frozenset({"PWD", "OLDPWD"})
# Programs that need a proxy with a password reach nothing without it.
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY", "WS_PROXY", "WSS_PROXY"})

_IN_ADDRESS = re.compile(r"://(?P<user>[^\s/:@\"'<>]*)(?::(?P<password>[^\s/@\"'<>]+))?@")
_IN_PAIRS = re.compile(
    r"(?i:(?<![a-z])(?:password|passwd|pwd|accountkey|sharedaccesskey|sharedaccesssignature|secret|sig))"
    r"=([^&;,\s]{6,})"
)
_PLAIN_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent", "mcp-protocol-version"})
_PRIVATE_KEY = "PRIVATE KEY-----"
_ESCAPE = re.compile(r"%[0-9A-F]{2}")


def is_secret(name: str) -> bool:
    """Return whether the name of a variable marks its value as secret."""
    upper = name.upper()
    if any(word in upper for word in SECRET_WORDS):
        return True
    if upper in _ORDINARY_NAMES:
        return False
    parts = [part.upper() for part in _PARTS.findall(name)]
    if not parts or parts[-1] in _HARMLESS_ENDS:
        return False
    if parts[-1] == "URL" and "AUTH" in parts:
        return False
    return any(part in _SECRET_PARTS or (part.endswith(_ENDINGS) and part not in _ORDINARY_PARTS) for part in parts)


def is_secret_variable(name: str, value: str) -> bool:
    """Return whether a variable must not reach programs that Atomic starts."""
    if name.upper() in _PROXIES:
        return False
    if is_secret(name):
        return not (_is_folder_name(name) and value.startswith("/"))
    return _PRIVATE_KEY in value or any(True for _ in _parts_of(value)) or any(True for _ in tokens(value))


def secrets_of(name: str, value: str) -> Iterator[str]:
    """Yield the secrets of a variable: its value, and passwords inside of it."""
    if is_secret_variable(name, value):
        yield value
    yield from _parts_of(value)


def secrets_of_header(name: str, value: str) -> Iterator[str]:
    """Yield the secrets of a header: all values, except in headers of the protocol."""
    if name.lower() not in _PLAIN_HEADERS:
        yield value
        yield from (word for word in value.split() if len(word) >= 12)  # without `Bearer`


def _parts_of(value: str) -> Iterator[str]:
    """Yield the passwords inside of an address or of a connection string."""
    for found in _IN_ADDRESS.finditer(value):
        secret = found["password"]
        if secret is None and len(found["user"]) >= 16:  # https://TOKEN@host
            secret = found["user"]
        if secret is not None:
            yield secret
            yield unquote(secret)
    for found in _IN_PAIRS.finditer(value):
        yield found[1]


def _is_folder_name(name: str) -> bool:
    """Return whether a name ends with PWD, which is a password or a working directory."""
    return name.upper().endswith("PWD") and not any(word in name.upper() for word in SECRET_WORDS)


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
