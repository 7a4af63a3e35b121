"""The user's desktop outside the screen: clipboard, editor, browser, notifications."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from atomic.base.errors import AtomicError
from atomic.tui import compat
from atomic.tui.text import one_line

if TYPE_CHECKING:
    from atomic.tui.app import AtomicApp

LONGEST = 74_994  # bytes: the longest text that terminals accept by OSC 52
_PATIENCE = 2.0  # seconds to wait for a clipboard program
_WITH_MESSAGES = ("iterm", "wezterm", "ghostty", "kitty")  # terminals that show OSC 9 as a notification

_TOOLS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("", ("pbcopy",)),
)


class Desktop:
    """Reaches the user's programs for the app."""

    def __init__(self, app: AtomicApp) -> None:
        self._app = app

    def notify_away(self, words: str) -> None:
        """Notify a user who looks at another window."""
        if not self._app.app_focus:
            compat.write(self._app, alert(words) + title(f"● {words}"))

    def reset_title(self) -> None:
        """Set the terminal's title to the name of the program."""
        compat.write(self._app, title("atomic"))

    def open_link(self, url: str) -> None:
        """Open a web address in a browser, or copy it where a browser cannot open a
        window.

        Other addresses are only shown.
        """
        # Without a window system a browser would open in our terminal.
        has_windows = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        if not url.startswith(("http://", "https://")):
            self._app.say(one_line(url))
        elif self._app.is_web or has_windows:
            self._app.open_url(url)
        else:
            self.copy(url, "")

    def copy(self, text: str, if_empty: str) -> None:
        """Copy a text and report how, or show `if_empty`."""

        async def work() -> None:
            written: list[str] = []
            report = await asyncio.to_thread(copy, text, written.append)
            compat.write(self._app, "".join(written))
            self._app.say(report)

        if text:
            self._app.run_in_background(work())
        else:
            self._app.say(if_empty)

    def edit(self, text: str, editor: str | None) -> str | None:
        """Return the text after the user has edited it, or None if that failed."""
        app = self._app
        problem = ""
        try:
            with app.suspend():
                # Caught inside, because Textual resumes only if nothing is raised.
                try:
                    text = edit(text, editor_command(editor))
                except EditorError as error:
                    problem = str(error)
        except SuspendNotSupported:
            app.say("There is no editor in a browser", severity="warning")
            return None
        if problem:
            app.say(problem, severity="error")
            return None
        return text


def copy(text: str, write: Callable[[str], None], environment: Mapping[str, str] = os.environ) -> str:
    """Copy the text and return a sentence that reports how.

    It may wait for a program, so call it in a thread. `write` sends text to the
    terminal.
    """
    tool = local_tool(environment)
    if tool is not None and _run(tool, text):
        return f"Copied to the clipboard ({tool[0]})"
    if environment.get("TMUX"):
        if _run(("tmux", "load-buffer", "-w", "-"), text):
            return "Copied to tmux, which passes it to the terminal"
        write(passed_through(osc_52(text)))
        return "Copied through tmux to the terminal (OSC 52)"
    if len(text.encode("utf-8", "replace")) > LONGEST:
        return "Not copied: it is too long for the terminal's clipboard (OSC 52)"
    write(osc_52(text))
    return "Copied by the terminal (OSC 52)"


def local_tool(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the clipboard program of this machine, or None if the user sits at another
    one.
    """
    if environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"):
        return None
    path = environment.get("PATH")
    for variable, tool in _TOOLS:
        if (not variable or environment.get(variable)) and shutil.which(tool[0], path=path):
            return tool
    return None


def osc_52(text: str) -> str:
    """Return the escape sequence by which a terminal fills its clipboard."""
    return f"\x1b]52;c;{b64encode(text.encode('utf-8', 'replace')).decode()}\x07"


def passed_through(words: str) -> str:
    """Wrap an escape sequence so that tmux passes it to the terminal around it."""
    doubled = words.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{doubled}\x1b\\"


def _run(argv: tuple[str, ...], text: str) -> bool:
    try:
        done = subprocess.run(
            argv,
            input=text.encode("utf-8", "replace"),
            timeout=_PATIENCE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def alert(words: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the escape sequence that notifies the user.

    `words` must be trusted text.
    """
    terminal = f"{environment.get('TERM_PROGRAM', '')} {environment.get('TERM', '')}".lower()
    if not environment.get("TMUX") and any(name in terminal for name in _WITH_MESSAGES):
        return f"\x1b]9;{_plain(words)}\x07"
    return "\x07"


def title(words: str) -> str:
    """Return the escape sequence that sets the terminal's title."""
    return f"\x1b]0;{_plain(words)}\x07"


def _plain(words: str) -> str:
    return "".join(sign for sign in words if sign.isprintable())


class EditorError(AtomicError):
    """The editor could not be used."""


def editor_command(setting: str | None, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the editor's command line: from the config, $VISUAL, $EDITOR, or vi."""
    chosen = setting or environment.get("VISUAL") or environment.get("EDITOR") or "vi"
    try:
        words = shlex.split(chosen)
    except ValueError as error:
        raise EditorError(f'The editor "{chosen}" is no command line: {error}') from error
    if not words:
        raise EditorError("No editor is set (set VISUAL, or `editor` in the config)")
    return words


def edit(text: str, command: list[str]) -> str:
    """Open the text in the editor and return the edited text.

    Waits until the editor ends. Raises EditorError; the text is unchanged then.
    """
    number, name = tempfile.mkstemp(prefix="atomic-", suffix=".md")  # readable only by its owner
    file = Path(name)
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(text.encode("utf-8", "surrogateescape"))
        done = subprocess.run([*command, name], check=False)
        if done.returncode != 0:
            raise EditorError(f'The editor "{command[0]}" ended with {done.returncode}; the text is as it was')
        edited = file.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise EditorError(f'The editor "{command[0]}" cannot be used: {error.strerror or error}') from error
    finally:
        file.unlink(missing_ok=True)
    return edited if text.endswith("\n") else edited.removesuffix("\n")
