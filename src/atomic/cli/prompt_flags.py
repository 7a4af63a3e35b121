"""Flags after the start of a prompt, where they would be text."""

from __future__ import annotations

from collections.abc import Iterable

from atomic.base.arguments import UsageError
from atomic.base.flags import Flag, flag_in_prompt
from atomic.cli.streams import confirmed, has_terminal, tell


def check_prompt(words: Iterable[str], flags: Iterable[Flag], *, question: str = "") -> None:
    """Refuse a prompt with a flag in it, unless a user at a terminal wants that text.

    A run without the intended cap or dry run costs money. A word that is only similar
    to a flag causes a warning. Without a `question` the user is not asked. Raises
    UsageError.
    """
    found = flag_in_prompt(words, flags)
    if found is None:
        return
    name, meant = found
    can_ask = bool(question) and has_terminal()
    if name == meant and not can_ask:
        raise UsageError(
            f"{name} comes after the start of the prompt, where it is only text:"
            " put it before the prompt, or put -- before a prompt with this text in it"
        )
    what = "and was not set" if name == meant else f"(is it {meant}?)"
    tell(f"warning: {name} is part of the prompt here {what}: flags go before the prompt")
    if can_ask and not confirmed(question):
        raise UsageError("nothing was started")
