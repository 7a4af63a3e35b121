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


def _theme(
    name: str,
    *,
    dark: bool,
    background: str,
    surface: str,
    panel: str,
    chosen: str,
    selection: str,
    text: str,
    muted: str,
    line: str,
    primary: str,
    secondary: str,
    accent: str,
    success: str,
    warning: str,
    error: str,
) -> Theme:
    """Return a theme that sets every variable, so that Textual derives none."""
    return Theme(
        name=_PREFIX + name,
        dark=dark,
        background=background,
        surface=surface,
        panel=panel,
        foreground=text,
        primary=primary,
        secondary=secondary,
        accent=accent,
        success=success,
        warning=warning,
        error=error,
        variables={
            "text": text,
            "text-muted": muted,
            "text-disabled": muted,
            "foreground-muted": muted,
            **{f"text-{role}": colour for role, colour in (
                ("primary", primary), ("secondary", secondary), ("accent", accent),
                ("success", success), ("warning", warning), ("error", error),
            )},
            "border": line,
            "border-blurred": line,
            "block-cursor-foreground": text,
            "block-cursor-background": chosen,
            "block-cursor-text-style": "bold",
            "block-cursor-blurred-foreground": text,
            "block-cursor-blurred-background": chosen,
            "block-cursor-blurred-text-style": "none",
            "block-hover-background": panel,
            "input-cursor-background": text,
            "input-cursor-foreground": background,
            "input-selection-background": selection,
            "input-selection-foreground": text,
            "screen-selection-background": selection,
            "screen-selection-foreground": text,
            "scrollbar": line,
            "scrollbar-hover": muted,
            "scrollbar-active": muted,
            "scrollbar-background": background,
            "scrollbar-background-hover": background,
            "scrollbar-background-active": background,
            "scrollbar-corner-color": background,
            "link-color": primary,
            "link-color-hover": primary,
            "link-background-hover": panel,
            "footer-key-foreground": primary,
        },
    )  # fmt: skip


def _ansi() -> Theme:
    """Return a theme of the terminal's own colours: no other background, reverse video."""
    plain = "ansi_default"
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
            "ansi-background": plain,  # Textual's style sheet requires these three of an ANSI theme
            "ansi-foreground": plain,
            "surface-active": plain,
            "text-muted": plain,
            "text-disabled": plain,
            "foreground-muted": plain,
            "border": plain,
            "border-blurred": plain,
            "block-cursor-foreground": plain,
            "block-cursor-background": plain,
            "block-cursor-text-style": "reverse",
            "block-cursor-blurred-foreground": plain,
            "block-cursor-blurred-background": plain,
            "block-cursor-blurred-text-style": "reverse",
            "input-selection-background": plain,
            "input-selection-foreground": plain,
            "scrollbar": plain,
            "scrollbar-hover": plain,
            "scrollbar-active": plain,
            "scrollbar-background": plain,
            "scrollbar-background-hover": plain,
            "scrollbar-background-active": plain,
            "link-color": "ansi_cyan",
            "link-color-hover": "ansi_cyan",
            "link-background-hover": plain,
            "footer-key-foreground": "ansi_cyan",
        },
    )


THEMES: Mapping[str, Theme] = MappingProxyType(
    {
        "dark": _theme(
            "dark",
            dark=True,
            background="#11141a",
            surface="#181c24",
            panel="#20262f",
            chosen="#2a3446",
            selection="#35507a",
            text="#e4e7ec",
            muted="#a3adba",
            line="#3d4756",
            primary="#7cb7ff",
            secondary="#c0abff",
            accent="#ffb073",
            success="#74d38f",
            warning="#f0c454",
            error="#ff918a",
        ),
        "light": _theme(
            "light",
            dark=False,
            background="#fcfcfb",
            surface="#f3f4f6",
            panel="#e9ecf0",
            chosen="#d6e3f5",
            selection="#b5d0f5",
            text="#1b2027",
            muted="#525b67",
            line="#b4bcc7",
            primary="#0a529f",
            secondary="#583bab",
            accent="#85400a",
            success="#15612b",
            warning="#704800",
            error="#a81c27",
        ),
        "ansi": _ansi(),
        "contrast": _theme(
            "contrast",
            dark=True,
            background="#000000",
            surface="#000000",
            panel="#101010",
            chosen="#00336b",
            selection="#00498f",
            text="#ffffff",
            muted="#dcdcdc",
            line="#ffffff",
            primary="#7fdbff",
            secondary="#dcc6ff",
            accent="#ffc58a",
            success="#7dff9b",
            warning="#ffe14d",
            error="#ffb3ad",
        ),
    }
)
