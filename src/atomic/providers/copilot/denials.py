"""What the user forbids stays forbidden, though all else is allowed without asking.

On its own command line Copilot reads `--deny-tool` and `--deny-url`, and `deniedUrls` of the user's settings; as a
server it does neither. So Atomic does it for it: rules of denial win over any leave.
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
    """The arguments that the program understands, and the rules of those that it would ignore."""
    kept: list[str] = []
    rules: list[Rule] = []
    flag: str | None = None
    for arg in args:
        name, equals, value = arg.partition("=")
        if name in _FLAGS:
            flag = None if equals else name  # else its values follow, up to the next flag
            rules += [_rule(name, value)] if equals else []
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
    """What the user's settings say. Raises ProviderError."""
    answer = await server.fetch("user.settings.get", {}, _Answer)
    return [{"kind": "url", "argument": url} for url in answer.settings.denied_urls.value or []]


async def forbid(server: Server, session: str, rules: Sequence[Rule]) -> None:
    """Have all that matches refused, whoever would allow it. Raises ProviderError."""
    if rules:
        params = {"sessionId": session, "rules": {"approved": [], "denied": list(rules)}}
        await server.call("session.permissions.configure", params)


def goes_where_it_may_not(text: str, rules: Sequence[Rule]) -> str | None:
    """An address in a command, or on its own, that a rule denies; Copilot itself does not look into commands."""
    patterns = [rule["argument"] for rule in rules if rule["kind"] == "url"]
    for url in _URL.findall(text):
        if any(pattern is None or _matches(url, pattern) for pattern in patterns):
            return str(url)
    return None


def _matches(url: str, pattern: str) -> bool:
    """As Copilot's own: a pattern without a protocol means https, `*.` stands for any subdomain."""
    asked, denied = urlsplit(url), urlsplit(pattern if "://" in pattern else f"https://{pattern}")
    host, wanted = asked.hostname or "", denied.hostname or ""
    is_host = host.endswith(wanted[1:]) if wanted.startswith("*.") else host == wanted
    is_port = denied.port is None or asked.port == denied.port
    return asked.scheme == denied.scheme and is_host and is_port and asked.path.startswith(denied.path)


def _rule(flag: str, text: str) -> Rule:
    """An address, or `shell(git push)`, `write`, `MyServer(tool)`."""
    if flag == "--deny-url":
        return {"kind": "url", "argument": text}
    found = _RULE.fullmatch(text.strip())
    kind, argument = (found[1], found[2]) if found else (text, None)
    return {"kind": kind.strip(), "argument": argument}
