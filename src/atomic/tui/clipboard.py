"""Copy a text to where the person can paste it, and say which way it went."""

from __future__ import annotations

import os
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable, Mapping

LONGEST = 74_994  # bytes of a text that terminals take by OSC 52
_PATIENCE = 2.0  # seconds for a program that takes a text

_TOOLS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("", ("pbcopy",)),
)


def copy(text: str, write: Callable[[str], None], environment: Mapping[str, str] = os.environ) -> str:
    """Copy it; how, for people. It may wait for a program: call it in a thread. `write` goes to the terminal."""
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
    """The program that fills the clipboard of this machine; None where the person sits at another one."""
    if environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"):
        return None
    path = environment.get("PATH")
    for variable, tool in _TOOLS:
        if (not variable or environment.get(variable)) and shutil.which(tool[0], path=path):
            return tool
    return None


def osc_52(text: str) -> str:
    """The words by which a terminal fills its clipboard."""
    return f"\x1b]52;c;{b64encode(text.encode('utf-8', 'replace')).decode()}\x07"


def passed_through(words: str) -> str:
    """Words that tmux hands on to the terminal around it."""
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
