"""Copy text to the user's clipboard."""

from __future__ import annotations

import os
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable, Mapping

LONGEST = 74_994  # bytes: the longest text that terminals accept by OSC 52
_PATIENCE = 2.0  # seconds to wait for a clipboard program

_TOOLS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("", ("pbcopy",)),
)


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
    """Return the clipboard program of this machine, or None if the user sits at another one."""
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
