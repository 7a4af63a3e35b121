"""Scripted agents for the ports of workflows that call models."""

from __future__ import annotations

from collections.abc import Callable

from atomic.providers import EndReason, Usage
from atomic.providers.base import Capabilities
from atomic.providers.turn import Turn
from tests.providers.scripted import ScriptedProvider, ScriptedSession


def scripted(answer: Callable[[str], str]) -> ScriptedProvider:
    """Return an agent whose answer to a prompt is what the function returns."""

    async def play(session: ScriptedSession, turn: Turn) -> None:
        turn.end(EndReason.DONE, text=answer(session.prompts[-1]), usage=Usage(input=1, output=1))

    return ScriptedProvider(play, capabilities=Capabilities(usage=True, resume=True))
