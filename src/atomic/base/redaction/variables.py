"""Decide which environment variables are secret, for agents, MCP servers, checks and
redaction.

A name is secret by a part of it: `DB_PASS`, `GITHUB_PAT`, `SENTRY_DSN`. A value is
secret by its form: an address with a password, a connection string with a key, a token
of a known service.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from atomic.base.redaction.tokens import tokens

SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")  # anywhere in a name

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
    return any(part in _SECRET_PARTS or _ends_like_a_secret(part) for part in parts)


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


def _ends_like_a_secret(part: str) -> bool:
    return part.endswith(_ENDINGS) and part not in _ORDINARY_PARTS


def _is_folder_name(name: str) -> bool:
    """Return whether a name ends with PWD, which is a password or a working directory."""
    return name.upper().endswith("PWD") and not any(word in name.upper() for word in SECRET_WORDS)
