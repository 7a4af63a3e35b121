"""Answer an agent's requests: permission for tools, and questions to the user."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from atomic.providers.acp.messages import Elicitation, PermissionRequest
from atomic.providers.base import Ask
from atomic.providers.events import QuestionAsked
from atomic.providers.forms import Form
from atomic.providers.jsonrpc import Json, no_method
from atomic.questions import Question

_PERMISSIONS = ("allow_once", "allow_always")
_DECLINED = {"action": "decline"}

_log = logging.getLogger(__name__)


class Client:
    """Answers the requests of an agent; it offers neither files nor terminals."""

    def __init__(
        self, ask: Ask | None, *, allowed: Callable[[str], None], asked: Callable[[QuestionAsked], None]
    ) -> None:
        self._ask = ask
        self._allowed = allowed
        self._asked = asked
        self._open: set[asyncio.Task[Sequence[Sequence[str]]]] = set()  # questions without an answer

    def give_up(self) -> None:
        """Cancel open questions: the turn ends."""
        for question in self._open:
            question.cancel()

    async def answer(self, method: str, params: Json) -> Json:
        """Answer a request.

        Raise JsonRpcError for an unknown method, msgspec.ValidationError for an unknown
        shape.
        """
        match method:
            case "session/request_permission":
                return {"outcome": self._permission(msgspec.convert(params, PermissionRequest))}
            case "elicitation/create":
                return await self._elicitation(msgspec.convert(params, Elicitation))
            case _:
                return await no_method(method, params)

    def _permission(self, request: PermissionRequest) -> Json:
        """Allow it at once, because no user may be there to answer."""
        self._allowed(request.tool_call.tool_call_id)
        for kind in _PERMISSIONS:
            for option in request.options:
                if option.kind == kind:
                    return {"outcome": "selected", "optionId": option.option_id}
        return {"outcome": "cancelled"}

    async def _elicitation(self, request: Elicitation) -> Json:
        """Ask the user to fill in a form, field by field.

        Decline requests to visit a page.
        """
        if self._ask is None or request.mode != "form" or request.requested_schema is None:
            return _DECLINED
        form = Form(request.message, request.requested_schema)
        if not form.is_supported:
            return _DECLINED
        self._asked(QuestionAsked(form.questions))
        answers = await self._answers(self._ask, form.questions)
        if answers is None:
            return {"action": "cancel"}
        values = form.values(answers)
        return {"action": "accept", "content": values} if form.accepts(values) else _DECLINED

    async def _answers(self, ask: Ask, questions: Sequence[Question]) -> Sequence[Sequence[str]] | None:
        """Return the answers, None if there was no answer."""

        async def answered() -> Sequence[Sequence[str]]:
            return await ask(questions)

        asking = asyncio.create_task(answered())
        self._open.add(asking)
        try:
            await asyncio.wait({asking})
            if asking.cancelled():
                return None
            if (error := asking.exception()) is not None:  # an error of the caller's `ask`: cancel the form
                _log.error("could not ask the user a question", exc_info=error)
                return None
            return asking.result()
        finally:
            asking.cancel()
            self._open.discard(asking)
