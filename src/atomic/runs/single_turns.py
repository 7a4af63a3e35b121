"""One turn of an agent, and its answer as text."""

from __future__ import annotations

import msgspec

from atomic.providers.base import AgentProvider, AgentSession, Capabilities, SessionOptions
from atomic.providers.errors import UnsupportedError
from atomic.providers.events import EndReason, TurnEnded
from atomic.workflows.errors import TurnFailedError


def supported_options(can: Capabilities, options: SessionOptions, prompt: str) -> tuple[SessionOptions, str]:
    """Return the options that a provider supports.

    An unsupported system prompt is added to the prompt.
    """
    if options.system_prompt is not None and not can.system_prompt:
        prompt = f"{prompt}\n---\n\n{options.system_prompt}"
        options = msgspec.structs.replace(options, system_prompt=None)
    if not can.tool_selection:
        options = msgspec.structs.replace(options, tools=None, denied_tools=())
    return options, prompt


async def answer_in_new_session(provider: AgentProvider, options: SessionOptions, prompt: str) -> str:
    """Run one turn in a new session.

    Without custom tools if the agent refuses them when it starts.
    """
    try:
        async with provider.open(options) as session:
            return await answer_of(session, prompt)
    except UnsupportedError:
        if not options.custom_tools:
            raise
    return await answer_in_new_session(provider, msgspec.structs.replace(options, custom_tools=()), prompt)


async def answer_of(session: AgentSession, prompt: str) -> str:
    """Run one turn and return its text. Raises TurnFailedError."""
    ended: TurnEnded | None = None
    async for event in session.send(prompt):
        if isinstance(event, TurnEnded):
            ended = event
    if ended is None:
        raise TurnFailedError("error", "the agent's output stopped before the end of the turn")
    if ended.reason is not EndReason.DONE:
        why = ended.error or f"the turn ended with '{ended.reason}'"
        raise TurnFailedError(str(ended.reason), why, said=ended.text)
    return ended.text
