"""Replace secrets in text and data: known ones, and values that look like secrets.

Known secrets are values of secret environment variables. Others are found by their
form: tokens of well-known services, private keys, passwords in addresses, and values
that are assigned to a name such as `API_KEY`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, cast

from atomic.base.redaction.known_secrets import (
    ASSIGNED_WORDS,
    MARK,
    SHORTEST,
    in_base64,
    lines_of,
    secrets_of,
    secrets_of_header,
    spellings,
)
from atomic.base.redaction.tokens import Span, private_keys, tokens

_PART = 64 * 1024  # characters
_ROUNDS = 10  # two are enough, except for secrets that look like the mark

_SHORT = 128  # characters; longer clean texts are not remembered
_MAX_CLEAN = 4096

# Types of plain data. A check for Mapping takes longer than everything else.
_WITHOUT_TEXT = (int, float, type(None))
_LISTS = (list, tuple)
_OBJECTS = (dict, Mapping)


class Redactor:
    """Replaces secrets by `[redacted]`.

    Redacted text does not change if it is redacted again.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        lines = {line for secret in secrets for line in lines_of(secret)}
        self._known = sorted(spellings(lines), key=lambda secret: (-len(secret), secret))
        self._in_base64 = {part for line in lines for part in in_base64(line)}
        # The mark comes first, because a secret may look like a part of it.
        self._pattern = re.compile("|".join(re.escape(text) for text in (MARK, *self._known)))
        self._clean: set[str] = set()  # short texts without secrets, which recur often

    @classmethod
    def of_environment(
        cls, *environments: Mapping[str, str] | None, headers: Iterable[Mapping[str, str]] = ()
    ) -> Redactor:
        """Return a redactor that knows secrets of this process, other environments and
        headers.
        """
        known = [
            secret
            for environment in (os.environ, *environments)
            for name, value in (environment or {}).items()
            for secret in secrets_of(name, value)
        ]
        for given in headers:
            known += [secret for name, value in given.items() for secret in secrets_of_header(name, value)]
        return cls(known)

    def text(self, text: str, *, code: bool = False) -> str:
        """Return the text without secrets.

        Line breaks stay, so that a patch stays valid.

        With `code`, names that are assigned to names stay (`token=token_of_user`), so
        that a program still runs.
        """
        if len(text) < SHORTEST or text in self._clean:
            return text
        given = text
        # A mark may reveal the beginning of another secret after it.
        for _ in range(_ROUNDS):
            spans = self.spans(text, code=code)
            redacted = _without(text, spans) if spans else text
            if redacted == text:
                break
            text = redacted
        if text is given and len(text) <= _SHORT and not code:
            if len(self._clean) >= _MAX_CLEAN:
                self._clean.clear()
            self._clean.add(text)
        return text

    def data(self, value: Any) -> Any:
        """Return plain data without secrets.

        A value under a name such as `api_key` is one.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, _WITHOUT_TEXT):
            return value
        if isinstance(value, _LISTS):
            return [self.data(inner) for inner in cast("Sequence[Any]", value)]
        if isinstance(value, _OBJECTS):
            items = cast("Mapping[Any, Any]", value).items()
            return {self.data(name): self._named(name, self.data(inner)) for name, inner in items}
        return value

    def pieces(self, pieces: Sequence[str]) -> list[str]:
        """Return the pieces of one text without secrets, also secrets that span several
        pieces.
        """
        spans = self.spans("".join(pieces))
        result: list[str] = []
        start = first = 0
        for piece in pieces:
            end = start + len(piece)
            while first < len(spans) and spans[first][1] <= start:
                first += 1
            inner: list[tuple[int, int, bool]] = []
            for a, b in islice(spans, first, None):
                if a >= end:
                    break
                inner.append((max(a, start) - start, min(b, end) - start, a >= start))
            result.append(self.text(_cut(piece, inner)))
            start = end
        return result

    def finds(self, text: str) -> bool:
        """Return whether a text has a secret, for content that cannot be redacted, such
        as images.
        """
        return self._holds_known(text) or any(True for _ in (*tokens(text), *_encoded(text, _runs(text))))

    def finds_in_file(self, data: bytes) -> bool:
        """Return whether a file of a project has a secret.

        Names that code passes on do not count.
        """
        text = data.decode("utf-8", "replace")
        return self.finds(text) if "\0" in text else bool(self.spans(text, code=True))

    def spans(self, text: str, *, code: bool = False) -> list[Span]:
        """Return the spans of secrets, in order and without overlaps."""
        runs = _runs(text)
        found = [*tokens(text), *private_keys(text), *_encoded(text, runs), *self._in_lines(text, runs)]
        known = self._holds_known(text)
        for start, end in _parts(text):
            found += _assigned(text, start, end, code)
            if known:
                found += [match.span() for match in self._pattern.finditer(text, start, end)]
        return _merged(found)

    def find_beginning(self, text: str) -> int:
        """Return where an unfinished known secret begins at the end of a text; its length
        if there is none.
        """
        longest = max(map(len, self._known), default=1) - 1
        for start in range(max(0, len(text) - longest), len(text)):
            end = text[start:]
            if any(secret.startswith(end) and secret != end for secret in self._known):
                return start
        return len(text)

    def _in_lines(self, text: str, runs: Sequence[Span]) -> Iterator[Span]:
        """Yield the lines of base64 texts that contain a secret."""
        for lines in _wrapped(text, runs):
            letters = "".join(text[start:end] for start, end in lines)
            if any(part in letters for part in self._in_base64) or _decodes_to_token(letters):
                yield from lines

    def _holds_known(self, text: str) -> bool:
        return any(secret in text for secret in self._known)  # much faster than the pattern, and mostly false

    def _named(self, name: Any, value: Any) -> Any:
        if isinstance(name, str) and isinstance(value, str) and _is_strong(name) and _looks_secret(value):
            return MARK
        return value


def redact(text: str) -> str:
    """Return the text without secrets of this process and values that look like
    secrets.
    """
    return Redactor.of_environment().text(text)


def _without(text: str, spans: Iterable[Span]) -> str:
    parts: list[str] = []
    at = 0
    for start, end in spans:
        parts += (text[at:start], MARK)
        at = end
    return "".join((*parts, text[at:]))


def _cut(piece: str, spans: Iterable[tuple[int, int, bool]]) -> str:
    """Return a piece without the spans; only the beginning of a span gets the mark."""
    parts: list[str] = []
    at = 0
    for start, end, begins in spans:
        parts += (piece[at:start], MARK if begins else "")
        at = end
    return "".join((*parts, piece[at:]))


def _parts(text: str) -> Iterator[Span]:
    """Yield spans of whole lines, so that redaction of a long text in a thread yields
    to others.
    """
    start = 0
    while start < len(text):
        newline = text.find("\n", start + _PART)
        end = len(text) if newline < 0 else newline + 1
        yield start, end
        start = end


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_LINE_END = re.compile(r"\r?\n[ \t]*|\\n?")  # in JSON a backslash and an n, with which the next run begins
_LAST_LINE = re.compile(r"[A-Za-z0-9+/]{1,76}={0,2}")
_FULL_LINE = 60  # characters of a line of base64, as `base64` and mail write it: 64 or 76


def _runs(text: str) -> list[Span]:
    """Return the spans that may be base64, line by line."""
    return [match.span() for match in _BASE64.finditer(text)]


def _encoded(text: str, runs: Iterable[Span]) -> Iterator[Span]:
    """Yield base64 texts that contain a token."""
    for start, end in runs:
        if _decodes_to_token(text[start:end]):
            yield start, end


def _decodes_to_token(letters: str) -> bool:
    from base64 import b64decode

    letters = letters.rstrip("=").replace("-", "+").replace("_", "/")
    letters = letters[:-1] if len(letters) % 4 == 1 else letters  # base64 never has this length
    data = b64decode(letters + "=" * (-len(letters) % 4))
    return data.isascii() and any(True for _ in tokens(data.decode("ascii")))


def _wrapped(text: str, runs: Sequence[Span]) -> Iterator[list[Span]]:
    """Yield the lines of each base64 text with several lines."""
    lines: list[Span] = []
    for start, end in runs:
        if lines and (gap := _LINE_END.fullmatch(text, lines[-1][1], start)):
            lines.append((start + (gap.group() == "\\"), end))
        else:
            yield from _with_last_line(text, lines)
            lines = [(start, end)]
        if end - start < _FULL_LINE:
            yield from _with_last_line(text, lines)
            lines = []
    yield from _with_last_line(text, lines)


def _with_last_line(text: str, lines: list[Span]) -> Iterator[list[Span]]:
    if lines and lines[-1][1] - lines[-1][0] >= _FULL_LINE:
        gap = _LINE_END.match(text, lines[-1][1])
        start = lines[-1][1] if gap is None else gap.end()
        if gap is not None and (last := _LAST_LINE.match(text, start)):
            lines = [*lines, last.span()]
    if len(lines) > 1:
        yield lines


_WORDS = tuple(word.lower() for word in ASSIGNED_WORDS)
_ASSIGNMENT = re.compile(
    rf"""
    (?P<word>{"|".join(_WORDS)})(?P<rest>[a-z0-9_-]{{0,32}}+)
    (?P<close>\\{{0,7}}["'])?[ \t]{{0,4}}(?P<sign>:=|=(?!=)|:(?!:))[ \t]{{0,4}}
    (?:(?P<open>\\{{0,7}}["'])(?P<quoted>[^"'\\\s]{{8,4096}})(?=\\{{0,7}}["'])|(?P<bare>[a-z0-9_+/.~!@#%^*-]{{8,512}}+={{0,2}})(?=$|[\s"',;&)\]}}\\<]))
    """,
    re.VERBOSE,
)
_NAME_BEFORE = re.compile(r"[A-Za-z0-9_-]{0,48}\Z")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_RUN = re.compile(r"[A-Za-z0-9]{12,}")
_DENSE = re.compile(r"[A-Za-z0-9+/]{32,}={0,2}")
_STRONG = {"token", "secret", "secrets", "password", "passwords", "passwd", "credential", "credentials"} | {
    "pass",
    "passphrase",
    "pwd",
    "jwt",
    "webhook",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "authtoken",
}
_OF_KEYS = {"api", "access", "secret", "private", "auth", "signing", "encryption", "master", "license", "account"}


def _assigned(text: str, start: int, end: int, code: bool) -> Iterator[Span]:
    part = text[start:end]
    lower = part.lower()
    if not any(word in lower for word in _WORDS):
        return
    if len(lower) != len(part):  # some letters are longer in lower case
        lower = "".join(letter.lower() if letter.isascii() else letter for letter in part)
    for match in _ASSIGNMENT.finditer(lower):  # a case-sensitive pattern is twice as fast
        first = match.start("word")
        last = match.end("rest")
        before = _NAME_BEFORE.search(part, max(0, first - 48), first)
        name = (before.group() if before else "") + part[first:last]
        group = "bare" if match["quoted"] is None else "quoted"
        value = part[match.start(group) : match.end(group)]
        found = _quoted_secret(name, value) if group == "quoted" else _bare_secret(name, value, match["sign"], code)
        if found:
            yield start + match.start(group), start + match.end(group)


def _quoted_secret(name: str, value: str) -> bool:
    return _looks_secret(value) if _is_strong(name) else _is_key(name) and _is_random(value)


def _bare_secret(name: str, value: str, sign: str, code: bool) -> bool:
    if not _is_strong(name):
        return _is_key(name) and _is_random(value)
    if not _looks_secret(value):
        return False
    if name.isupper() or _is_random(value):
        return True
    return not code and sign == "=" and not _is_path_of_names(value)


@lru_cache(maxsize=1024)
def _is_strong(name: str) -> bool:
    """Return whether a name has a word for secrets: `api_key`, `authToken`, but not
    `tokenizer`.
    """
    parts = [part.lower() for part in _PARTS.findall(name)]
    return any(part in _STRONG for part in parts) or any(
        part in _OF_KEYS and following in ("key", "keys") for part, following in pairwise(parts)
    )


def _is_key(name: str) -> bool:
    return "key" in (part.lower() for part in _PARTS.findall(name))


def _looks_secret(value: str) -> bool:
    """Return whether a value may be a secret, not a reference (`$TOKEN`, `<your key>`,
    a path).
    """
    return (
        len(value) >= SHORTEST and value[0] not in "$<{%*." and not any(map(str.isspace, value)) and not _is_path(value)
    )


def _is_path(value: str) -> bool:
    return value.startswith(("/", "~/")) and not _is_random(value)


def _is_random(value: str) -> bool:
    """Return whether a value has a long run of mixed letters and digits."""
    if len(value) >= 32 and _DENSE.fullmatch(value) and not (value.islower() or value.isupper()):
        return any(map(str.isdigit, value))  # such as keys of Amazon: runs of any length between slashes
    return any(any(map(str.isdigit, run)) and any(map(str.isalpha, run)) for run in _RUN.findall(value))


def _is_path_of_names(value: str) -> bool:
    return all(part.isidentifier() for part in re.split(r"[./]", value) if part) and bool(re.search(r"[./]", value))
