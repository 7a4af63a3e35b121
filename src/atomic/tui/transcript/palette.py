"""Styles of the transcript from the theme's colours, with readable contrast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.style import Style
from textual.color import Color

from atomic.tui.themes import contrast

_READABLE = 4.5  # WCAG's contrast for text
_STEPS = 12
_ENDS = (Color(0, 0, 0), Color(255, 255, 255))


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity: it is a cache key
class Palette:
    """One style for each role. `key` identifies the palette."""

    key: int
    text: Style
    muted: Style
    primary: Style
    accent: Style
    success: Style
    warning: Style
    error: Style
    inline_code: Style
    code: Style
    user: Style
    keyword: Style
    string: Style
    number: Style
    deleted: Style
    name: Style
    comment: Style
    added: Style
    removed: Style
    pill: Style

    @classmethod
    def of(cls, variables: Mapping[str, str], background: Color) -> Palette:
        """Return the palette for a theme's variables on a background."""
        colours = _Colours(variables, background)
        panel = colours.panel
        return cls(
            key=hash((tuple(sorted(variables.items())), background)),
            text=colours.style("foreground"),
            muted=colours.muted(background),
            primary=colours.style("text-primary", "primary"),
            accent=colours.style("text-accent", "accent"),
            success=colours.style("text-success", "success"),
            warning=colours.style("text-warning", "warning"),
            error=colours.style("text-error", "error"),
            inline_code=colours.style("text-accent", "accent", behind=panel),
            code=colours.style("foreground", behind=panel),
            user=colours.style("foreground", behind=panel),
            keyword=colours.style("text-primary", "primary", behind=panel),
            string=colours.style("text-success", "success", behind=panel),
            number=colours.style("text-warning", "warning", behind=panel),
            deleted=colours.style("text-error", "error", behind=panel),
            name=colours.style("text-accent", "accent", behind=panel),
            comment=colours.muted(panel) + Style(italic=True),
            added=colours.style("text-success", "success"),
            removed=colours.style("text-error", "error"),
            pill=colours.reversed("text-primary", "primary"),
        )


class _Colours:
    def __init__(self, variables: Mapping[str, str], background: Color) -> None:
        self._variables = variables
        self._background = background
        self.foreground = self._find(("foreground",)) or background.get_contrast_text(1.0)
        self.panel = self._find(("panel", "surface")) or background

    def style(self, *names: str, behind: Color | None = None) -> Style:
        """Return a readable style with the first of these colours that the theme has."""
        behind = behind or self._background
        colour = self._readable(self._find(names) or self.foreground, behind)
        return Style.from_color(colour.rich_color, behind.rich_color)

    def muted(self, behind: Color) -> Style:
        """Return a style for less important text."""
        if self.foreground.ansi is not None or behind.ansi is not None:
            return Style(color=self.foreground.rich_color, bgcolor=behind.rich_color, dim=True)
        colour = self._readable(behind.blend(self.foreground, 0.6), behind)
        return Style.from_color(colour.rich_color, behind.rich_color)

    def reversed(self, *names: str) -> Style:
        """Return a style for a label that stands out."""
        if self.foreground.ansi is not None:
            return Style(reverse=True)
        back = self._find(names) or self.foreground
        front = max(_ENDS, key=lambda colour: contrast(colour.rgb, back.rgb))
        return Style.from_color(front.rich_color, back.rich_color)

    def _find(self, names: tuple[str, ...]) -> Color | None:
        for name in names:
            value = self._variables.get(name, "")
            if value and not value.startswith("auto"):
                colour = Color.parse(value)
                return colour if colour.ansi is not None else self._background + colour
        return None

    def _readable(self, colour: Color, behind: Color) -> Color:
        if colour.ansi is not None or behind.ansi is not None:
            return colour
        far = max(_ENDS, key=lambda end: contrast(end.rgb, behind.rgb))
        steps = (colour.blend(far, step / _STEPS) for step in range(_STEPS))
        return next((candidate for candidate in steps if contrast(candidate.rgb, behind.rgb) >= _READABLE), far)
