"""Prepare a prompt for the agent."""

from __future__ import annotations

_COMMAND = "/"
_HIDDEN = "\u2060"  # invisible and not a blank: it hides a command


def command_of(prompt: str) -> str:
    """Return the name of the command that a prompt calls, "" if it calls none."""
    text = prompt.strip()
    if not text.startswith(_COMMAND):
        return ""
    return text[1:].partition("\n")[0].partition(" ")[0]


def is_compaction(prompt: str) -> bool:
    return command_of(prompt) == "compact"


def not_a_command(prompt: str) -> str:
    """Return the text so that an agent does not read it as a command, for example a path."""
    return f"{_HIDDEN}{prompt}"


def system_block(system_prompt: str) -> str:
    """Wrap the system prompt; the protocol can only send it with the first prompt."""
    return f"<system_prompt>\n{system_prompt}\n</system_prompt>"


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON cannot represent."""
    return text.encode(errors="replace").decode()
