"""The four themes, and which one fits a terminal.

Every text colour has a contrast of at least 4.5 on every background in use, so a widget
may combine them freely. `ansi` uses the terminal's sixteen colours and its background,
and highlights by reverse video, so it also works without colours (`NO_COLOR`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from textual.theme import Theme

if TYPE_CHECKING:
    from textual.app import App

NAMES = ("dark", "light", "ansi", "contrast")
_PREFIX = "atomic-"
_LIGHT_FROM = 0.4  # backgrounds of at least this luminance need dark text

WRITTEN_WITH = ("text", "text-muted", "foreground", "primary", "secondary", "accent", "success", "warning", "error")
WRITTEN_ON = ("background", "surface", "panel", "block-cursor-background")


def theme_for(background: tuple[int, int, int] | None, *, few_colours: bool) -> str:
    """Return the theme for a terminal's background, which is None if it is unknown.

    A terminal with at most 16 colours would approximate another theme's colours, which
    is unreadable.
    """
    if few_colours:
        return "ansi"
    if background is not None and _luminance(background) >= _LIGHT_FROM:
        return "light"
    return "dark"


def parse_colour(colour: str) -> tuple[int, int, int] | None:
    """Parse a colour as a terminal reports it, such as `rgb:ffff/ffff/ffff`.

    None if it is none.
    """
    parts = colour.partition(":")[2].split("/")
    try:
        red, green, blue = (int(part[:2].ljust(2, part[:1] or "x"), 16) for part in parts)
    except ValueError:
        return None
    return red, green, blue


def textual_name(name: str) -> str:
    """Return Textual's name of a theme."""
    return name if name.startswith(_PREFIX) else _PREFIX + name


def shown_name(name: str) -> str:
    """Return the user's name of a theme."""
    return name.removeprefix(_PREFIX)


def register(app: App[object]) -> None:
    """Register the themes with an app; `app.theme = textual_name(name)` selects one."""
    for theme in THEMES.values():
        app.register_theme(theme)


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """Return the contrast of two colours as WCAG defines it, 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: tuple[int, int, int]) -> float:
    red, green, blue = (part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


# The colours of the themes that do not use the terminal's own.
_COLUMNS = ("dark", "light", "contrast")
_COLOURS = {
    "background": ("#11141a", "#fcfcfb", "#000000"),
    "surface": ("#181c24", "#f3f4f6", "#000000"),
    "panel": ("#20262f", "#e9ecf0", "#101010"),
    "chosen": ("#2a3446", "#d6e3f5", "#00336b"),
    "selection": ("#35507a", "#b5d0f5", "#00498f"),
    "foreground": ("#e4e7ec", "#1b2027", "#ffffff"),
    "muted": ("#a3adba", "#525b67", "#dcdcdc"),
    "line": ("#3d4756", "#b4bcc7", "#ffffff"),
    "primary": ("#7cb7ff", "#0a529f", "#7fdbff"),
    "secondary": ("#c0abff", "#583bab", "#dcc6ff"),
    "accent": ("#ffb073", "#85400a", "#ffc58a"),
    "success": ("#74d38f", "#15612b", "#7dff9b"),
    "warning": ("#f0c454", "#704800", "#ffe14d"),
    "error": ("#ff918a", "#a81c27", "#ffb3ad"),
}
_ROLES = ("primary", "secondary", "accent", "success", "warning", "error")

# The variables of Textual's widgets, by the colour that they take.
_VARIABLES = {
    "foreground": (
        "text",
        "block-cursor-foreground",
        "block-cursor-blurred-foreground",
        "input-cursor-background",
        "input-selection-foreground",
        "screen-selection-foreground",
    ),
    "muted": ("text-muted", "text-disabled", "foreground-muted", "scrollbar-hover", "scrollbar-active"),
    "line": ("border", "border-blurred", "scrollbar"),
    "chosen": ("block-cursor-background", "block-cursor-blurred-background"),
    "panel": ("block-hover-background", "link-background-hover"),
    "selection": ("input-selection-background", "screen-selection-background"),
    "background": (
        "input-cursor-foreground",
        "scrollbar-background",
        "scrollbar-background-hover",
        "scrollbar-background-active",
        "scrollbar-corner-color",
    ),
    "primary": ("link-color", "link-color-hover", "footer-key-foreground"),
}


def _theme(name: str) -> Theme:
    """Return a theme that sets every variable, so that Textual derives none."""
    column = _COLUMNS.index(name)
    colours = {colour: values[column] for colour, values in _COLOURS.items()}
    variables = {variable: colours[colour] for colour, names in _VARIABLES.items() for variable in names}
    variables |= {f"text-{role}": colours[role] for role in _ROLES}
    return Theme(
        name=_PREFIX + name,
        dark=name != "light",
        background=colours["background"],
        surface=colours["surface"],
        panel=colours["panel"],
        foreground=colours["foreground"],
        primary=colours["primary"],
        secondary=colours["secondary"],
        accent=colours["accent"],
        success=colours["success"],
        warning=colours["warning"],
        error=colours["error"],
        variables={**variables, "block-cursor-text-style": "bold", "block-cursor-blurred-text-style": "none"},
    )


def _ansi() -> Theme:
    """Return a theme of the terminal's own colours: no other background, reverse video."""
    plain = "ansi_default"
    plain_variables = (
        *("ansi-background", "ansi-foreground", "surface-active"),  # Textual requires these three of an ANSI theme
        *("text-muted", "text-disabled", "foreground-muted", "border", "border-blurred"),
        *("block-cursor-foreground", "block-cursor-background"),
        *("block-cursor-blurred-foreground", "block-cursor-blurred-background"),
        *("input-selection-background", "input-selection-foreground"),
        *("scrollbar", "scrollbar-hover", "scrollbar-active"),
        *("scrollbar-background", "scrollbar-background-hover", "scrollbar-background-active"),
        "link-background-hover",
    )
    return Theme(
        name=_PREFIX + "ansi",
        ansi=True,
        primary="ansi_cyan",
        secondary="ansi_blue",
        accent="ansi_magenta",
        success="ansi_green",
        warning="ansi_yellow",
        error="ansi_red",
        foreground=plain,
        background=plain,
        surface=plain,
        panel=plain,
        boost=plain,
        variables={
            **dict.fromkeys(plain_variables, plain),
            **dict.fromkeys(_VARIABLES["primary"], "ansi_cyan"),
            "block-cursor-text-style": "reverse",
            "block-cursor-blurred-text-style": "reverse",
        },
    )


THEMES: Mapping[str, Theme] = MappingProxyType(
    {"dark": _theme("dark"), "light": _theme("light"), "ansi": _ansi(), "contrast": _theme("contrast")}
)
