"""Answer OpenCode's questions and permission requests during a turn."""

from __future__ import annotations

import logging
from collections.abc import Callable

from atomic.providers.base import Ask
from atomic.providers.events import QuestionAsked
from atomic.providers.opencode import messages
from atomic.providers.opencode.api import Api, RefusedError
from atomic.providers.turn import TurnTasks
from atomic.questions import Option, Question

_log = logging.getLogger(__name__)


class Dialogue:
    """Answers each request once, several at the same time."""

    def __init__(
        self,
        api: Api,
        folder: str,
        ask: Ask | None,
        *,
        emit: Callable[[QuestionAsked, str], None],
        fail: Callable[[Exception], None],
    ) -> None:
        """Take `fail` for errors of the caller's `ask`, which end the turn."""
        self._api = api
        self._folder = folder
        self._ask = ask
        self._emit = emit
        self._fail = fail
        self._seen: set[str] = set()
        self._tasks = TurnTasks(self._failed)

    def question(self, request: messages.QuestionRequest) -> None:
        if self._is_new(request.id):
            self._tasks.start(self._answer(request))

    def permission(self, request: messages.PermissionRequest) -> None:
        """Allow it once; OpenCode does not ask for tools that the user denies."""
        if self._is_new(request.id):
            _log.debug("opencode asks for permission: %s", request.permission)
            self._tasks.start(self._api.permit(self._folder, request.id))

    async def close(self) -> None:
        await self._tasks.cancel()

    async def _answer(self, request: messages.QuestionRequest) -> None:
        questions = tuple(
            Question(
                one.question,
                options=[Option(option.label, option.description) for option in one.options],
                header=one.header,
                multi_select=one.multiple,
            )
            for one in request.questions
        )
        self._emit(QuestionAsked(questions), request.session)
        if self._ask is None:
            await self._api.reject(self._folder, request.id)
            return
        answers = await self._ask(questions)
        await self._api.answer(self._folder, request.id, answers)

    def _is_new(self, id: str) -> bool:
        is_new = id not in self._seen
        self._seen.add(id)
        return is_new

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, RefusedError):
            _log.info("opencode: a request was withdrawn: %s", error)
        elif isinstance(error, Exception):
            self._fail(error)
