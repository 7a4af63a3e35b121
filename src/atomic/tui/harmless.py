"""Text from outside as a terminal may see it: nothing in it is obeyed, hidden or reordered.

Control characters are shown as pictures of themselves; what is invisible or turns the direction of writing is shown as
`�`. Models, tools, file names and git all pass here before they become a line of the screen.
"""

from __future__ import annotations

import re
import unicodedata

_SIGN = "\N{REPLACEMENT CHARACTER}"
_TAB = 4
_MARKS = 3  # combining marks on one letter; more would paint over the lines above and below
_BASE = "\N{DOTTED CIRCLE}"  # carries a mark that has no letter before it

_INVISIBLE = (
    (0x80, 0x9F),  # C1: a terminal may take them for escapes
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
    (0xD800, 0xDFFF),  # halves of characters: no terminal could be sent them
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),
    (0xFFFE, 0xFFFF),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),  # tags and more variation selectors: whole texts can hide in them
)
_UNSAFE = re.compile(
    "[\\x00-\\x09\\x0b-\\x1f\\x7f" + "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in _INVISIBLE) + "]"
)
_EMOJI = re.compile("(?<=[\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff#*0-9])[\ufe0e\ufe0f]")
_JOINED = re.compile("(?<=[\u2190-\u2bff\U0001f000-\U0001faff])\u200d(?=[\u2190-\u2bff\U0001f000-\U0001faff])")


def harmless(text: str) -> str:
    """A text that a terminal only shows; its lines stay lines, tabs become spaces."""
    if text.isascii() and text.isprintable():
        return text
    if _UNSAFE.search(text) is not None:
        text = _shown(text)
    return text if text.isascii() else _with_few_marks(text)


def one_line(text: str) -> str:
    """A text as one line."""
    return harmless(" ".join(text.split()))


def _shown(text: str) -> str:
    text = text.replace("\r\n", "\n")
    if "\t" in text:
        text = text.expandtabs(_TAB)
    if not text.isascii():
        text = _JOINED.sub("", _EMOJI.sub("", text))  # an emoji's parts are shown side by side: their width is certain
    return _UNSAFE.sub(_picture, text)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\N{SYMBOL FOR DELETE}" if code == 0x7F else _SIGN


def _with_few_marks(text: str) -> str:
    """Leave no letter more marks than it can carry, and no mark without a letter."""
    if not any(map(_is_mark, set(text))):
        return text
    return "\n".join(map(_line_with_few_marks, text.split("\n")))


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in {"Mn", "Me"}


def _line_with_few_marks(line: str) -> str:
    out: list[str] = []
    run = 0
    for at, char in enumerate(line):
        if not _is_mark(char):
            run = 0
            out.append(char)
            continue
        run += 1
        if at == 0 or out[-1] == " ":
            out.append(_BASE)
        if run <= _MARKS:
            out.append(char)
        elif run == _MARKS + 1:
            out.append(_SIGN)
    return "".join(out)
