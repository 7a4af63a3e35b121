"""Edit a text in the user's editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from atomic.base.errors import AtomicError


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
