"""What an agent may ask of us: leave to run a tool, and a person's answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from atomic.providers.acp.messages import Elicitation, PermissionRequest
from atomic.providers.acp.questions import read_form
from atomic.providers.base import Ask
from atomic.providers.events import QuestionAsked
from atomic.providers.jsonrpc import Json, no_method
from atomic.questions import Question

_LEAVE = ("allow_once", "allow_always")
_DECLINED = {"action": "decline"}

_log = logging.getLogger(__name__)


class Client:
    """Answers the requests of an agent. Files and terminals it has none: they are refused."""

    def __init__(
        self, ask: Ask | None, *, allowed: Callable[[str], None], asked: Callable[[QuestionAsked], None]
    ) -> None:
        self._ask, self._allowed, self._asked = ask, allowed, asked
        self._open: set[asyncio.Task[Sequence[Sequence[str]]]] = set()  # questions that nobody has answered yet

    def give_up(self) -> None:
        """The turn is to end: nobody need answer any more."""
        for question in self._open:
            question.cancel()

    async def answer(self, method: str, params: Json) -> Json:
        """What the agent gets. Raises JsonRpcError for what nobody has, msgspec.ValidationError for another shape."""
        match method:
            case "session/request_permission":
                return {"outcome": self._permission(msgspec.convert(params, PermissionRequest))}
            case "elicitation/create":
                return await self._elicitation(msgspec.convert(params, Elicitation))
            case _:
                return await no_method(method, params)

    def _permission(self, request: PermissionRequest) -> Json:
        """Allow it, at once: nobody is there at night."""
        self._allowed(request.tool_call.tool_call_id)
        for kind in _LEAVE:
            for option in request.options:
                if option.kind == kind:
                    return {"outcome": "selected", "optionId": option.option_id}
        return {"outcome": "cancelled"}

    async def _elicitation(self, request: Elicitation) -> Json:
        """Put a form to a person, field by field. A page that a person would have to visit is declined."""
        if self._ask is None or request.mode != "form":
            return _DECLINED
        form = read_form(request)
        if form is None:
            return _DECLINED
        self._asked(QuestionAsked(form.questions))
        answers = await self._answers(self._ask, form.questions)
        if answers is None:
            return {"action": "cancel"}
        contents = form.filled(answers)
        return _DECLINED if contents is None else {"action": "accept", "content": contents}

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
