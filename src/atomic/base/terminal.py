"""Clean text from outside for terminals, so that nothing in it is obeyed, hidden or reordered.

Everything that Atomic prints passes here: the command line, `--plain`, the screen and logs.
Control characters become visible symbols (`␛`). Invisible characters and characters that
change the direction of text become `�`. Emoji and the joiners of Arabic and Indic scripts
stay. JSON keeps its meaning: there such characters are written as `\\uXXXX`. Pure.
"""

from __future__ import annotations

import unicodedata
from functools import cache

TYPE_CHECKING = False  # `re` is imported when the first text needs it: `atomic --help` does without
if TYPE_CHECKING:
    import re

_SIGN = "\N{REPLACEMENT CHARACTER}"
_MARKS = 3  # combining marks on one letter; more would paint over the lines above and below
_BASE = "\N{DOTTED CIRCLE}"  # carries a mark that has no letter before it
_CONTEXT = 8  # characters before a piece of a text that decide how its first one is shown

_INVISIBLE = (
    (0x80, 0x9F),  # C1: a terminal may read them as escapes
    (0xAD, 0xAD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x2028, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xD800, 0xDFFF),  # lone surrogates cannot be encoded
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),
    (0xFFFE, 0xFFFF),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),  # tags and variation selectors can hide whole texts
)
_EMOJI = "\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_JOINING_SCRIPTS = "\u0600-\u06ff\u0750-\u077f\u0870-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17b3\ufb50-\ufdff"


def harmless(text: str) -> str:
    """Return a text that a terminal only displays; line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    if _unsafe().search(text) is not None:
        text = _unsafe().sub(_symbol, text.replace("\r\n", "\n"))
    return text if text.isascii() else _with_few_marks(text)


def one_line(text: str) -> str:
    """Return a text as one line that a terminal only displays."""
    return harmless(" ".join(text.split()))


def without_joiners(text: str) -> str:
    """Return a text without the joiners and selectors that `harmless` keeps.

    The parts of an emoji are then separate characters, whose width is the same
    everywhere.
    """
    return text if text.isascii() else _joiners().sub("", text)


class HarmlessStream:
    """Cleans the pieces of one text; a sequence across two pieces is cleaned as one."""

    def __init__(self) -> None:
        self._before = ""

    def piece(self, text: str) -> str:
        """Return the next piece, cleaned."""
        before = "" if self._before.endswith("\r") else self._before
        shown = harmless(before + text)[len(harmless(before)) :]
        self._before = (before + text)[-_CONTEXT:]
        return shown


def escaped_json(text: str) -> str:
    """Return the same JSON with `\\uXXXX` for characters that a terminal would obey, hide or reorder."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _unsafe_in_json().sub(_escape, text)


def _classes(*, controls: str) -> str:
    return f"[{controls}" + "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in _INVISIBLE) + "]"


@cache
def _unsafe() -> re.Pattern[str]:
    """Return the pattern, compiled at first use: most output is plain ASCII."""
    import re

    kept = (
        f"(?<=[{_EMOJI}#*0-9])[\ufe0e\ufe0f]",  # how an emoji is drawn
        f"(?<=[{_EMOJI}])\u200d",
        f"(?<=[{_EMOJI}][\ufe0e\ufe0f])\u200d",
        f"(?<=[{_JOINING_SCRIPTS}])[\u200c\u200d]",
    )
    return re.compile(f"(?!{'|'.join(kept)})" + _classes(controls=r"\x00-\x08\x0b-\x1f\x7f"))


@cache
def _unsafe_in_json() -> re.Pattern[str]:
    import re

    return re.compile(_classes(controls=r"\x7f"))


@cache
def _joiners() -> re.Pattern[str]:
    import re

    return re.compile("[\u200c\u200d\ufe0e\ufe0f]")


def _symbol(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else _SIGN


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def _with_few_marks(text: str) -> str:
    """Limit the marks of each letter, and give a mark without a letter a base."""
    if not any(map(_is_mark, set(text))):
        return text
    return "\n".join(map(_line_with_few_marks, text.split("\n")))


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in {"Mn", "Me"} and char not in "\ufe0e\ufe0f"


def _line_with_few_marks(line: str) -> str:
    out: list[str] = []
    run = 0
    for at, char in enumerate(line):
        if not _is_mark(char):
            run = 0
            out.append(char)
            continue
        run += 1
        if at == 0 or out[-1] in " \t":
            out.append(_BASE)
        if run <= _MARKS:
            out.append(char)
        elif run == _MARKS + 1:
            out.append(_SIGN)
    return "".join(out)
