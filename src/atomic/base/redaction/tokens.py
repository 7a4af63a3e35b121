"""Find secrets by their form: tokens, passwords in commands and headers, private keys.

The services publish these forms. A rule has hints. Its pattern is tried only if a hint
is in the text, because a search for a word is a hundred times faster than a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

Span = tuple[int, int]

_EDGE = r"(?<![A-Za-z0-9])"
_WORD = "[A-Za-z0-9]"
_WIDE = "[A-Za-z0-9_-]"
_HEX = "[a-f0-9]"

_FLAG = r"--(?<![\w-]--)(?:password|passwd|pass|passphrase|token|auth-token|api-key|apikey|secret|client-secret)"

# The last two parts of three; the first one is a number, in base64.
_DISCORD = (
    rf"(\.(?<={_WIDE}{{24}}\.){_WIDE}{{6}}\.(?=[A-Za-z_-]*[0-9])(?=[a-z0-9_-]*[A-Z]){_WIDE}{{27,40}})"
    r"(?![\w.])"
)

# The prefix of a token, and the pattern of the rest.
_PREFIXED: tuple[tuple[str, str], ...] = (
    ("sk-ant-", _WIDE + "{8,}"),
    ("github_pat_", "[A-Za-z0-9_]{16,}"),
    ("hf_", _WORD + "{30,}"),
    ("api_org_", _WORD + "{30,}"),
    ("npm_", _WORD + "{30,}"),
    ("pypi-", _WIDE + "{32,}"),
    ("rubygems_", _HEX + "{40,}"),
    ("whsec_", "[A-Za-z0-9+/=]{24,}"),
    ("SG.", _WIDE + r"{16,32}\." + _WIDE + "{16,64}"),
    ("ya29.", _WIDE + "{20,}"),
    ("GOCSPX-", _WIDE + "{20,}"),
    ("AIza", _WIDE + "{30,}"),
    ("1//0", _WIDE + "{30,}"),
    ("dapi", _HEX + "{32}(?:-[0-9])?(?![A-Za-z0-9])"),
    ("secret_", _WORD + "{40,}"),
    ("ntn_", _WORD + "{40,}"),
    ("sbp_", _HEX + "{40}"),
    ("sb_secret_", _WIDE + "{20,}"),
    ("glsa_", _WORD + "{32}_" + _HEX + "{8}"),
    ("glc_", "[A-Za-z0-9+/=]{32,}"),
    ("AGE-SECRET-KEY-1", "[A-Z0-9]{50,}"),
    ("xai-", _WORD + "{40,}"),
    ("gsk_", _WORD + "{40,}"),
    ("pplx-", _WORD + "{40,}"),
    ("r8_", _WORD + "{36,}"),
    ("ATATT3x", "[A-Za-z0-9_=-]{40,}"),
    ("ATCTT3x", "[A-Za-z0-9_=-]{40,}"),
    ("xkeysib-", _HEX + "{64}-" + _WORD + "{16}"),
    ("tskey-", "[a-z]+-[A-Za-z0-9-]{16,}"),
    ("pul-", _HEX + "{40}"),
    ("nfp_", _WORD + "{36,}"),
    ("fo1_", _WIDE + "{40,}"),
    ("HRKU-", _WIDE + "{36,}"),
    ("NRAK-", "[A-Z0-9]{27}"),
    ("sntryu_", _HEX + "{64}"),
    ("sntrys_", "[A-Za-z0-9+/=_-]{40,}"),
    ("dt0c01.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    ("PMAK-", _HEX + "{24}-" + _HEX + "{34}"),
    ("figd_", _WIDE + "{36,}"),
    ("sha256~", _WIDE + "{40,}"),
    ("AKCp", _WORD + "{60,}"),
    ("LTAI", _WORD + "{20}(?![A-Za-z0-9])"),
    ("ABSK", "[A-Za-z0-9+/]{100,}={0,2}"),
    ("ops_eyJ", "[A-Za-z0-9+/=_-]{100,}"),
    ("bkua_", _HEX + "{40}"),
    ("CFPAT-", _WIDE + "{40,}"),
    ("duffel_live_", _WIDE + "{40,}"),
    ("pnu_", _WORD + "{36}"),
    ("aio_", _WORD + "{28}(?![A-Za-z0-9])"),
    ("key-", _HEX + "{32}(?![A-Za-z0-9])"),
    ("GR1348941", _WIDE + "{20}"),
)
# Tokens without a fixed prefix. The group is the secret.
_OTHERS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("sk-",), r"(sk-(?<![A-Za-z0-9]sk-)(?:[A-Za-z0-9]{16,}|(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{16,}))"),
    (("_live_", "_test_"), _EDGE + rf"((?:sk|rk)_(?:live|test)_{_WORD}{{10,}})"),
    (("gh",), r"(gh(?<![A-Za-z0-9]gh)[pousr]_[A-Za-z0-9]{16,})"),
    (("gl",), r"(gl(?<![A-Za-z0-9]gl)(?:pat|rtr?|dt|ptt|cbt|ft|oas|soat|imt|agent)-[A-Za-z0-9_.-]{16,})"),
    (("AKIA", "ASIA", "ABIA", "ACCA"), _EDGE + r"((?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16})(?![A-Za-z0-9])"),
    (("xox",), _EDGE + r"(xox[abeoprs]-[A-Za-z0-9-]{10,})"),
    (("xapp-",), _EDGE + r"(xapp-[0-9]-[A-Z0-9]+-[0-9]+-[a-z0-9]{16,})"),
    (("hooks.slack.com",), r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9+/]{20,})"),
    (("/api/webhooks/",), r"/api/webhooks/[0-9]{10,}/([A-Za-z0-9_-]{40,})"),
    (("hv",), _EDGE + rf"(hv[sbr]\.{_WIDE}{{20,}})"),
    (("_v1_",), _EDGE + r"(do[opr]_v1_[a-f0-9]{64})"),
    (("shp",), _EDGE + r"(shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32})"),
    (("lin_",), _EDGE + rf"(lin_(?:api|oauth)_{_WORD}{{32,}})"),
    (("dckr_",), _EDGE + rf"(dckr_[op]at_{_WIDE}{{20,}})"),
    (("pscale_",), _EDGE + r"(pscale_(?:tkn|oauth|pw)_[A-Za-z0-9_.-]{32,})"),
    (("dp.",), _EDGE + rf"(dp\.(?:pt|st|ct|sa|scim|audit)\.{_WORD}{{40,}})"),
    ((".atlasv1.",), rf"({_WORD}{{14}}\.atlasv1\.[A-Za-z0-9_=-]{{60,}})"),
    (("sq0",), _EDGE + rf"(sq0(?:atp|csp|idp)-{_WIDE}{{22,}})"),
    (("pat",), r"(pat(?<![A-Za-z0-9]pat)[A-Za-z0-9]{14}\.[a-f0-9]{64})"),
    (("pat-",), _EDGE + r"(pat-(?:na|eu)[0-9]-[a-f0-9-]{36})"),
    ((":AA",), r"(?<![A-Za-z0-9:])([0-9]{8,10}:AA[A-Za-z0-9_-]{32,})"),
    ((".",), _DISCORD),
    (("eyJ",), _EDGE + r"(eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"),
    # headers, commands, addresses
    (("earer", "EARER"), r"(?i:bearer)[ \t]+((?=[A-Za-z._~+/=-]{0,64}[0-9]|\S{20})[A-Za-z0-9._~+/=-]{8,})"),
    (("asic", "ASIC"), r"(?i:authorization)\W{1,4}(?i:basic)[ \t]+([A-Za-z0-9+/=]{8,})"),
    (("ookie", "OOKIE"), r"(?i:cookie):[ \t]*([A-Za-z0-9_.-]{1,64}=[^\s\"'\\]{8,}(?:;[ \t]*[^\s\"'\\;]+)*)"),
    (("://",), r"://[^\s/:@\"'<>]{0,64}:([^\s/@\"'<>]{3,256})@"),
    (("://",), r"://([A-Za-z0-9_-]{20,256})@"),
    (("--",), _FLAG + r"(?:=|[ \t]+)['\"]?(?![A-Z_]+(?![\w-])|[-$<{%*(\[])([^\s'\"`,)]{6,256})"),
    (("login",), r"login[ \t]+\S{1,128}\s+password[ \t]+([^\s$<{]\S{3,256})"),
    (("curl",), r"\bcurl\b[^\n]{0,400}?[ \t](?:-u|--user)[ =]?['\"]?[^\s:'\"$<]{1,128}:([^\s'\"$<]{3,256})"),
    (('"auth',), r'"auth\\{0,7}"[ \t]*:[ \t]*\\{0,7}"([A-Za-z0-9+/]{12,}={0,2})'),
    (("ccountKey=", "ccessKey=", "ccessSignature="), r"Acc(?:ountKey|essKey|essSignature)=([A-Za-z0-9+/%&=]{16,})"),
)  # fmt: skip
_RULES = (
    # A pattern that begins with a word is ten times faster than one that begins with a
    # condition.
    *((prefix, f"({re.escape(prefix)}(?<![A-Za-z0-9]{re.escape(prefix)}){rest})") for prefix, rest in _PREFIXED),
    *((hint, pattern) for hints, pattern in _OTHERS for hint in hints),
)


def tokens(text: str) -> Iterator[Span]:
    """Yield the spans of tokens, and of passwords in commands, headers and addresses."""
    for hint, pattern in _RULES:
        if hint in text:
            for match in _compiled(pattern).finditer(text):
                yield match.span(1)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return the pattern, compiled at first use. Most patterns are never used."""
    return re.compile(pattern)


_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PUTTY = re.compile(r"Private-Lines: [0-9]{1,4}")
# The lines of a key, in a file, in a patch (which keeps its signs) or in JSON.
_LINE_END = r"(?:\r?\n|(?:\\r)?\\n)"
_KEY_LINE = re.compile(r"(?:^[+\- ]|\\[nr])*(\[redacted\]|[A-Za-z0-9+/=]{4,})", re.MULTILINE)
_LINES_AFTER = re.compile(
    rf"(?:{_LINE_END}[+\- ]?[ \t]*(?:(?:\[redacted\]|[A-Za-z0-9+/=]{{16,}})[ \t]*|[A-Z][A-Za-z-]+: [^\n\\]*|))+"
)
_SPLIT = re.compile(f"({_LINE_END})")
_LAST_LINE = re.compile(r"[+\- ]?[ \t]*(?:\[redacted\]|[A-Za-z0-9+/=]{1,120})[ \t]*")
_FULL_LINE = re.compile(r"[+\- ]?[ \t]*(?:\[redacted\]|[A-Za-z0-9+/=]{16,120})[ \t]*")
_LONGEST_KEY = 64 * 1024  # characters


def private_keys(text: str) -> Iterator[Span]:
    """Yield each line of each private key by itself.

    The key may be cut at either end.
    """
    if "PRIVATE KEY" in text:
        begins = [match.end() for match in _KEY_BEGIN.finditer(text)]
        ends = [match.start() for match in _KEY_END.finditer(text)]
        yield from _begun_keys(text, begins, ends)
        yield from _ended_keys(text, ends)
    if "Private-Lines: " in text:
        for begin in _PUTTY.finditer(text):
            yield from _lines_of(text, begin.end(), _end_of_lines(text, begin.end()))


def _begun_keys(text: str, begins: list[int], ends: list[int]) -> Iterator[Span]:
    """Yield the lines after each BEGIN: up to END, or as long as they look like a key."""
    place = 0
    for begin, following in pairwise([*begins, len(text) + 1]):
        while place < len(ends) and ends[place] < begin:
            place += 1
        has_end = place < len(ends) and ends[place] < following
        yield from _lines_of(text, begin, ends[place] if has_end else _end_of_lines(text, begin))


def _ended_keys(text: str, ends: list[int]) -> Iterator[Span]:
    """Yield the lines before each END that look like a key, whose BEGIN may be missing."""
    before = 0
    for end in ends:
        start = max(before, end - _LONGEST_KEY)
        before = end
        parts = _SPLIT.split(text[start:end])  # lines and line ends, in turn
        at = end - len(parts[-1])
        if parts[-1].strip("+- \t"):
            continue
        line = _LAST_LINE
        for place in range(len(parts) - 3, -1, -2):
            if line.fullmatch(parts[place]) is None:
                break
            line = _FULL_LINE
            at -= len(parts[place]) + len(parts[place + 1])
        yield from _lines_of(text, at, end)


def _end_of_lines(text: str, start: int) -> int:
    after = _LINES_AFTER.match(text, start)
    return start if after is None else after.end()


def _lines_of(text: str, start: int, end: int) -> Iterator[Span]:
    for line in _KEY_LINE.finditer(text, start, end):
        yield line.span(1)
