"""A prompt as the agent takes it."""

from __future__ import annotations

_COMMAND = "/"
_HIDDEN = "\u2060"  # takes no room and is no blank: what begins with it is no command


def command_of(prompt: str) -> str:
    """The name of the command that a prompt calls; nothing if it is none."""
    text = prompt.strip()
    if not text.startswith(_COMMAND):
        return ""
    return text[1:].partition("\n")[0].partition(" ")[0]


def is_compaction(prompt: str) -> bool:
    return command_of(prompt) == "compact"


def no_command(prompt: str) -> str:
    """The same text, but nothing that an agent takes for a command: a path may begin a prompt, too."""
    return f"{_HIDDEN}{prompt}"


def system_block(system_prompt: str) -> str:
    """Standing instructions; the protocol has no place for them but the first prompt."""
    return f"<system_prompt>\n{system_prompt}\n</system_prompt>"


def speakable(text: str) -> str:
    """The text without halves of characters, which no JSON can carry."""
    return text.encode(errors="replace").decode()
