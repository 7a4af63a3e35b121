"""A screen as comparable text: the characters, and below them their styles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import Any

from rich.cells import cell_len
from rich.color import Color, ColorType
from rich.style import Style
from textual._context import visible_screen_stack
from textual.app import App

from atomic.tui.themes import contrast

_SIGNS = ascii_letters + digits + "!#$%&*+-/:;<=>?@^_~"
_BASE = "."
_PLAIN = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_NAMES = (*_PLAIN, *(f"bright_{name}" for name in _PLAIN))


@dataclass(frozen=True)
class Look:
    """The colours and attributes of a cell."""

    foreground: str
    background: str
    signs: str = ""

    def __str__(self) -> str:
        return f"{self.foreground} on {self.background}{' ' + self.signs if self.signs else ''}"


@dataclass(frozen=True)
class Frame:
    """The rows of cells of a screen. The second cell of a wide character is empty."""

    letters: tuple[tuple[str, ...], ...]
    looks: tuple[tuple[Look, ...], ...]

    @property
    def text(self) -> str:
        return "\n".join("".join(row).rstrip() for row in self.letters)


def frame_of(app: App[Any]) -> Frame:
    """Return the current frame of an app."""
    letters: list[tuple[str, ...]] = []
    looks: list[tuple[Look, ...]] = []
    visible_screen_stack.set(app._background_screens)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownArgumentType]
    for strip in app.screen._compositor.render_strips():  # pyright: ignore[reportPrivateUsage]
        row: list[str] = []
        row_looks: list[Look] = []
        for text, style, _ in strip:
            cells = _cells(text)
            row += cells
            row_looks += [_look(style)] * len(cells)
        letters.append(tuple(row))
        looks.append(tuple(row_looks))
    return Frame(tuple(letters), tuple(looks))


def _cells(text: str) -> list[str]:
    cells: list[str] = []
    for letter in text:
        wide = cell_len(letter)
        if wide:
            cells += [letter, *[""] * (wide - 1)]
        elif cells:
            cells[-1] += letter
    return cells


def _look(style: Style | None) -> Look:
    style = style or Style()
    names = ("bold", "dim", "italic", "underline", "reverse", "strike")
    signs = " ".join(name for name in names if getattr(style, name))
    return Look(_colour(style.color), _colour(style.bgcolor), signs)


def _colour(colour: Color | None) -> str:
    if colour is None or colour.is_default:
        return "default"
    if colour.type is ColorType.TRUECOLOR and colour.triplet is not None:
        return colour.triplet.hex
    return _NAMES[colour.number] if colour.number is not None and colour.number < 16 else colour.name


def as_text(frames: Mapping[str, Frame]) -> str:
    """Return the text of one reference file: a state in all its themes.

    All themes show the same characters. A sign is a combination of styles, one per theme.
    """
    names = list(frames)
    first = frames[names[0]]
    for name in names[1:]:
        assert frames[name].text == first.text, f"{names[0]} and {name} show different characters:\n{frames[name].text}"
    grid = [list(zip(*(frames[name].looks[y] for name in names), strict=True)) for y in range(len(first.looks))]
    signs = _signs(grid)
    lines = ["".join(row).rstrip() for row in first.letters]
    styles = ["".join(signs[cell] for cell in row).rstrip(_BASE) for row in grid]
    legend = [f"{sign}  " + "   ".join(f"{name}: {look}" for name, look in zip(names, cell, strict=True))
              for cell, sign in signs.items()]  # fmt: skip
    return "\n".join([*(f"|{row}" for row in lines), "", *(f"|{row}" for row in styles), "", *legend]) + "\n"


def _signs(grid: list[list[tuple[Look, ...]]]) -> dict[tuple[Look, ...], str]:
    """Assign a sign to each combination, and a dot to the most frequent one."""
    cells = [cell for row in grid for cell in row]
    base = Counter(cells).most_common(1)[0][0]
    others = [cell for cell in dict.fromkeys(cells) if cell != base]
    return {base: _BASE, **dict(zip(others, _SIGNS, strict=False))}


def find_unreadable(frame: Frame, least: float = 4.5) -> list[str]:
    """Return letters and digits with too little contrast, but no lines or marks."""
    found: dict[str, str] = {}
    for letters, looks in zip(frame.letters, frame.looks, strict=True):
        for letter, look in zip(letters, looks, strict=True):
            if letter[:1].isalnum() and (value := _contrast(look)) is not None and value < least:
                found.setdefault(str(look), f"{look}: {value:.2f} at {''.join(letters).strip()!r}")
    return list(found.values())


def _contrast(look: Look) -> float | None:
    foreground, background = (
        (look.background, look.foreground) if "reverse" in look.signs else (look.foreground, look.background)
    )
    if not (foreground.startswith("#") and background.startswith("#")):
        return None  # the terminal's own colours
    return contrast(_parts(foreground), _parts(background))


def _parts(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
