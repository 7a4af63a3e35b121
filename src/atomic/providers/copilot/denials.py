"""Apply the user's denials, which Copilot ignores as a server.

On its own command line Copilot reads `--deny-tool`, `--deny-url`, and `deniedUrls` of
the user's settings. As a server it does not, so Atomic adds these rules to each
session. They override every permission.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from atomic.providers.copilot.server import Server

Rule = dict[str, str | None]

_RULE = re.compile(r"([^(]+)(?:\((.*)\))?", re.DOTALL)
_URL = re.compile(r"https?://[^\s'\"<>|;&)]+")
_FLAGS = ("--deny-tool", "--deny-url")


def without_denials(args: Sequence[str]) -> tuple[list[str], list[Rule]]:
    """Return the arguments without denials, and the rules of the denials."""
    kept: list[str] = []
    rules: list[Rule] = []
    flag: str | None = None
    for arg in args:
        name, equals, value = arg.partition("=")
        if name in _FLAGS:
            flag = None
            if equals:
                rules.append(_rule(name, value))
            else:
                flag = name  # its values follow, up to the next flag
        elif flag is not None and not arg.startswith("-"):
            rules.append(_rule(flag, arg))
        else:
            flag = None
            kept.append(arg)
    return kept, rules


class _Setting(msgspec.Struct, frozen=True):
    value: list[str] | None = None


class _Known(msgspec.Struct, frozen=True, rename="camel"):
    denied_urls: _Setting = _Setting()


class _Answer(msgspec.Struct, frozen=True):
    settings: _Known


async def denied_urls(server: Server) -> list[Rule]:
    """Return the rules of the user's settings. Raise ProviderError."""
    answer = await server.fetch("user.settings.get", {}, _Answer)
    return [{"kind": "url", "argument": url} for url in answer.settings.denied_urls.value or []]


async def forbid(server: Server, session: str, rules: Sequence[Rule]) -> None:
    """Refuse everything that matches the rules. Raise ProviderError."""
    if rules:
        params = {"sessionId": session, "rules": {"approved": [], "denied": list(rules)}}
        await server.call("session.permissions.configure", params)


def find_denied_url(text: str, rules: Sequence[Rule]) -> str | None:
    """Return a URL in a text that a rule denies.

    Copilot does not search commands itself.
    """
    patterns = [rule["argument"] for rule in rules if rule["kind"] == "url"]
    for url in _URL.findall(text):
        if any(pattern is None or _matches(url, pattern) for pattern in patterns):
            return str(url)
    return None


def _matches(url: str, pattern: str) -> bool:
    """Match as Copilot does: no scheme means https, `*.` means any subdomain."""
    asked = urlsplit(url)
    denied = urlsplit(pattern if "://" in pattern else f"https://{pattern}")
    host = asked.hostname or ""
    denied_host = denied.hostname or ""
    is_host = host.endswith(denied_host[1:]) if denied_host.startswith("*.") else host == denied_host
    is_port = denied.port is None or asked.port == denied.port
    return asked.scheme == denied.scheme and is_host and is_port and asked.path.startswith(denied.path)


def _rule(flag: str, text: str) -> Rule:
    """Parse a URL, or `shell(git push)`, `write`, `MyServer(tool)`."""
    if flag == "--deny-url":
        return {"kind": "url", "argument": text}
    found = _RULE.fullmatch(text.strip())
    kind, argument = (found[1], found[2]) if found else (text, None)
    return {"kind": kind.strip(), "argument": argument}
