"""One turn, from the prompt to its end: what is heard is told, what is asked is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from atomic.providers.base import SessionOptions
from atomic.providers.errors import ProviderError
from atomic.providers.events import QuestionAsked
from atomic.providers.opencode import wire
from atomic.providers.opencode.api import Api
from atomic.providers.opencode.catching_up import catch_up
from atomic.providers.opencode.dialogue import Dialogue
from atomic.providers.opencode.router import Event, Inbox, Router
from atomic.providers.opencode.translate import Translator
from atomic.providers.turns import Turn

_AGAIN = 0.2  # seconds between two requests to stop
_STOPPING = 5.0  # seconds for a turn that we stop ourselves
_IN_VAIN = 2.0  # seconds for the reason of a turn that ended without an answer


class Hearing:
    """Sends a prompt and listens."""

    def __init__(
        self, api: Api, router: Router, inbox: Inbox, folder: str, options: SessionOptions, turn: Turn, prompt: str
    ) -> None:
        self._api, self._inbox, self._folder, self._turn = api, inbox, folder, turn
        self._prompt = prompt
        self._stopping: asyncio.Task[None] | None = None
        self._dialogue = Dialogue(api, folder, options.ask, tell=self._tell_question, fail=inbox.put)
        self.translator = Translator(
            turn,
            inbox.session,
            prompt,
            adopt=lambda child: router.adopt(child, inbox),
            stop=self._stop,
            max_turns=options.max_turns,
            has_own_tools=bool(options.custom_tools),
        )

    async def run(self, body: Mapping[str, Any], *, wants_value: bool) -> None:
        """Raises ProviderError where the server is lost or cannot be understood, and what the person's side raises."""
        self.translator.wants_value = wants_value
        try:
            await self._api.prompt(self._folder, self._inbox.session, {"messageID": self._prompt, **body})
            while not self._turn.over:
                await self._next()
        finally:
            self.translator.leave()
            if self._stopping is not None:
                self._stopping.cancel()
                await asyncio.gather(self._stopping, return_exceptions=True)
            await self._dialogue.close()

    async def _next(self) -> None:
        try:
            async with asyncio.timeout(_IN_VAIN if self.translator.is_idle_in_vain else None):
                news = await self._inbox.take()
        except TimeoutError:
            self.translator.finish()
            return
        if isinstance(news, Event):
            self._take(news)
        else:
            await catch_up(self._api, self._folder, self._inbox.session, self._prompt, self.translator, self._dialogue)

    def _take(self, event: Event) -> None:
        try:
            match event.type:
                case "question.asked":
                    self._dialogue.question(wire.read(event.properties, wire.QuestionRequest))
                case "permission.asked":
                    self._dialogue.permission(wire.read(event.properties, wire.PermissionRequest))
                case _:
                    self.translator.take(event)
        except msgspec.ValidationError:
            self._turn.note_unknown(event.type)

    def _tell_question(self, question: QuestionAsked, session: str) -> None:
        agents = self.translator.subagents
        agent = agents.of(session) if agents.knows(session) else None
        self._turn.tell(msgspec.structs.replace(question, agent=agent))

    def _stop(self) -> None:
        """We have had enough of this turn."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop_it())

    async def _stop_it(self) -> None:
        try:
            async with asyncio.timeout(_STOPPING):
                await abort(self._api, self._folder, self._inbox.session, self._turn)
        except (TimeoutError, ProviderError):
            self.translator.finish()


async def abort(api: Api, folder: str, session: str, turn: Turn) -> None:
    """Have a turn aborted, again and again: before its prompt was taken up there is nothing to abort."""
    while not turn.over:
        await api.abort(folder, session)
        await turn.wait_over(_AGAIN)
