"""Write images of the states: `python -m tests.tui.snapshots.images OUT [NAME...]`.

Each frame becomes an SVG; sheets of six frames also become PNGs.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from rich.cells import cell_len

from tests.tui.snapshots.capture import SIZES, frames_of
from tests.tui.snapshots.frames import Frame, Look
from tests.tui.snapshots.states import STATES

# Pixels. A line is as high as the font, so that box lines join.
_CELL = 9
_LINE = 17
_BASE = 14
# The terminal's own colours in an image.
_TERMINAL = {
    "default": "#d4d4d4", "black": "#000000", "red": "#e06c75", "green": "#98c379", "yellow": "#e5c07b",
    "blue": "#61afef", "magenta": "#c678dd", "cyan": "#56b6c2", "white": "#d4d4d4", "bright_white": "#ffffff",
}  # fmt: skip


def svg_of(frame: Frame, title: str = "") -> str:
    """Return a frame as SVG. Text is stretched to its cells, so any font fits."""
    width = len(frame.letters[0]) * _CELL
    height = len(frame.letters) * _LINE
    rows = [_row(frame, y) for y, _ in enumerate(frame.letters)]
    shapes = [shape for backgrounds, _ in rows for shape in backgrounds] + [
        shape for _, foregrounds in rows for shape in foregrounds
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="DejaVu Sans Mono, monospace" font-size="15">\n'
        f"<title>{escape(title)}</title>\n" + "\n".join(shapes) + "\n</svg>\n"
    )


def _row(frame: Frame, y: int) -> tuple[list[str], list[str]]:
    """Return the backgrounds and the texts of a row.

    They are separate because text may reach into the next row.
    """
    backgrounds: list[str] = []
    foregrounds: list[str] = []
    cells = list(zip(range(len(frame.letters[y])), frame.letters[y], frame.looks[y], strict=True))
    for look, group in groupby(cells, key=lambda cell: cell[2]):
        run = list(group)
        foreground, background = _colours(look)
        x = run[0][0] * _CELL
        wide = len(run) * _CELL
        backgrounds.append(f'<rect x="{x}" y="{y * _LINE}" width="{wide}" height="{_LINE}" fill="{background}"/>')
        for kind, word in groupby(run, key=lambda cell: _kind(cell[1])):
            if kind != " ":
                foregrounds.append(_text(list(word), y, foreground, look))
    return backgrounds, foregrounds


def _kind(letter: str) -> str:
    """Return the kind of a cell: blank, wide or narrow.

    Each kind is drawn separately, because fonts differ in the width of wide characters.
    """
    if letter == " ":
        return " "
    return "wide" if not letter or cell_len(letter) > 1 else "narrow"


def _text(word: Sequence[tuple[int, str, Look]], y: int, foreground: str, look: Look) -> str:
    weight = ' font-weight="bold"' if "bold" in look.signs else ""
    slant = ' font-style="italic"' if "italic" in look.signs else ""
    line = "line-through" if "strike" in look.signs else ""
    if "underline" in look.signs:
        line = "underline"
    under = f' text-decoration="{line}"' if line else ""
    x = word[0][0] * _CELL
    wide = len(word) * _CELL
    letters = escape("".join(letter for _, letter, _ in word))
    return (
        f'<text x="{x}" y="{y * _LINE + _BASE}" textLength="{wide}" lengthAdjust="spacingAndGlyphs" '
        f'fill="{foreground}"{weight}{slant}{under}>{letters}</text>'
    )


def _colours(look: Look) -> tuple[str, str]:
    foreground = look.foreground if look.foreground.startswith("#") else _TERMINAL.get(look.foreground, "#d4d4d4")
    background = look.background if look.background.startswith("#") else _TERMINAL.get(look.background, "#1e1e1e")
    background = "#1e1e1e" if look.background == "default" else background
    return (background, foreground) if "reverse" in look.signs else (foreground, background)


def render_png(svg: Path, png: Path, width: int, height: int) -> None:
    """Render an SVG as PNG with Chromium."""
    chromium = which("chromium")
    if chromium is None:
        sys.exit("images: Chromium is not installed (apt-get install chromium)")
    with TemporaryDirectory() as home:
        subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={home}",
             f"--window-size={width},{height}", f"--screenshot={png}", svg.as_uri()],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip


def sheet_of(frames: Sequence[tuple[str, Frame]], columns: int) -> tuple[str, int, int]:
    """Return several frames in one SVG, each below its name, and its size."""
    wide = max(len(frame.letters[0]) for _, frame in frames) * _CELL + 20
    high = max(len(frame.letters) for _, frame in frames) * _LINE + 40
    parts: list[str] = []
    for at, (name, frame) in enumerate(frames):
        x = at % columns * wide + 10
        y = at // columns * high + 30
        parts.append(f'<text x="{x}" y="{y - 8}" fill="#c00" font-family="sans-serif">{escape(name)}</text>')
        parts.append(f'<g transform="translate({x},{y})">{svg_of(frame)}</g>')
    width = wide * columns
    height = high * -(-len(frames) // columns)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">{"".join(parts)}</svg>',
        width,
        height,
    )


async def main(out: Path, names: Sequence[str]) -> None:
    """Write the images and sheets of all states, or of the named ones."""
    out.mkdir(parents=True, exist_ok=True)
    for size in SIZES:
        states = [state for state in STATES if size in state.sizes and (not names or state.name in names)]
        taken: list[tuple[str, Frame]] = []
        async for state, frames in frames_of(states, size):
            taken += [(f"{state.name}@{size}-{theme}", frame) for theme, frame in frames.items()]
        for name, frame in taken:
            (out / f"{name}.svg").write_text(svg_of(frame, name), "utf-8")
        for at in range(0, len(taken), 6):
            image, width, height = sheet_of(taken[at : at + 6], 2)
            svg = out / f"sheet-{size}-{at // 6:02}.svg"
            svg.write_text(image, "utf-8")
            render_png(svg, svg.with_suffix(".png"), width, height)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tests.tui.snapshots.images OUT [NAME...]")
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
