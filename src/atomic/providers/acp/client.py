"""What an agent may ask of us: leave to run a tool, and a person's answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    CancelElicitationResponse,
    DeclineElicitationResponse,
    DeniedOutcome,
    ElicitationFormRequestMode,
    ElicitationFormSessionMode,
    ElicitationMode,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from atomic.providers.acp.questions import read_form
from atomic.providers.base import Ask
from atomic.providers.events import QuestionAsked
from atomic.questions import Question

_LEAVE = ("allow_once", "allow_always")

_log = logging.getLogger(__name__)


class Client:
    """The client that the SDK calls. What it does not have (files, terminals) the SDK refuses in its name."""

    def __init__(
        self, ask: Ask | None, *, allowed: Callable[[str], None], asked: Callable[[QuestionAsked], None]
    ) -> None:
        self._ask, self._allowed, self._asked = ask, allowed, asked
        self._open: set[asyncio.Task[Sequence[Sequence[str]]]] = set()  # questions that nobody has answered yet

    def give_up(self) -> None:
        """The turn is to end: nobody need answer any more."""
        for question in self._open:
            question.cancel()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: Sequence[PermissionOption]
    ) -> RequestPermissionResponse:
        """Allow it, at once: nobody is there at night."""
        self._allowed(tool_call.tool_call_id)
        for kind in _LEAVE:
            for option in options:
                if option.kind == kind:
                    outcome = AllowedOutcome(outcome="selected", option_id=option.option_id)
                    return RequestPermissionResponse(outcome=outcome)
        return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))

    async def create_elicitation(
        self, message: str, mode: ElicitationMode
    ) -> AcceptElicitationResponse | DeclineElicitationResponse | CancelElicitationResponse:
        """Put a form to a person, field by field. A page that a person would have to visit is declined."""
        if self._ask is None or not isinstance(mode, (ElicitationFormSessionMode, ElicitationFormRequestMode)):
            return DeclineElicitationResponse(action="decline")
        form = read_form(message, mode.requested_schema)
        if form is None:
            return DeclineElicitationResponse(action="decline")
        self._asked(QuestionAsked(form.questions))
        answers = await self._answers(self._ask, form.questions)
        if answers is None:
            return CancelElicitationResponse(action="cancel")
        contents = form.filled(answers)
        if contents is None:
            return DeclineElicitationResponse(action="decline")
        return AcceptElicitationResponse(action="accept", content=contents)

    async def _answers(self, ask: Ask, questions: Sequence[Question]) -> Sequence[Sequence[str]] | None:
        """The answers; None if there are none."""
        asking = asyncio.create_task(_asked(ask, questions))
        self._open.add(asking)
        try:
            await asyncio.wait({asking})
            if asking.cancelled():
                return None
            if (error := asking.exception()) is not None:  # the caller's own: the agent is told that nobody answered
                _log.error("a question could not be put to a person", exc_info=error)
                return None
            return asking.result()
        finally:
            asking.cancel()
            self._open.discard(asking)


async def _asked(ask: Ask, questions: Sequence[Question]) -> Sequence[Sequence[str]]:
    return await ask(questions)
