"""Parse the address of a remote as data. Pure.

Git and ssh read some addresses as commands and options, so only plain ones are
accepted.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import msgspec

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,250}[A-Za-z0-9])?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
# git@host:owner/repo
_SHORT = re.compile(r"(?:(?P<user>[^@:/]+)@)?(?P<host>[^@:/]+):(?P<path>[^:].*)", re.DOTALL)
_PART = re.compile(r"[A-Za-z0-9_.~][A-Za-z0-9._~-]*")


class RemoteAddress(msgspec.Struct, frozen=True):
    """An https or ssh address to push to.

    `path` is `owner/repository`, without `.git`.
    """

    url: str
    host: str
    path: str
    is_ssh: bool


def read_address(url: str) -> RemoteAddress:
    """Return the parts of a remote's address.

    Raises ValueError, with the reason, for everything but https and ssh.
    """
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("it has characters that an address cannot have")
    scheme, _, rest = url.partition("://")
    if not rest:
        found = _SHORT.fullmatch(url)
        if found is None or "::" in url:
            raise ValueError("only https and ssh addresses can be pushed to")
        return _address(url, found["user"], found["host"], found["path"].removeprefix("/"), is_ssh=True)
    if scheme not in ("https", "ssh"):
        raise ValueError("only https and ssh addresses can be pushed to")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ValueError("it is not a valid address") from error
    if parts.query or parts.fragment:
        raise ValueError("it has more than a host and a path")
    # The login in an https address is for the host and is not checked here.
    user = parts.username if scheme == "ssh" else None
    return _address(url, user, parts.hostname or "", parts.path.lstrip("/"), is_ssh=scheme == "ssh")


def _address(url: str, user: str | None, host: str, path: str, *, is_ssh: bool) -> RemoteAddress:
    if _HOST.fullmatch(host) is None or (user is not None and _USER.fullmatch(user) is None):
        raise ValueError("its host or user is not a valid name")
    path = path.rstrip("/").removesuffix(".git")
    parts = path.split("/")
    if any(_PART.fullmatch(part) is None or part in (".", "..") for part in parts):
        raise ValueError("its path is not the path of a repository")
    return RemoteAddress(url, host.lower(), path, is_ssh)
