"""Run one turn of OpenCode, and request events that a gap in the stream lost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from atomic.providers.base import SessionOptions
from atomic.providers.errors import ProviderError
from atomic.providers.events import QuestionAsked
from atomic.providers.opencode import messages
from atomic.providers.opencode.api import Api
from atomic.providers.opencode.questions import Dialogue
from atomic.providers.opencode.stream import Event, Inbox, Router
from atomic.providers.opencode.translate import Translator
from atomic.providers.turn import Turn, cancel_all

_ABORT_INTERVAL = 0.2  # seconds between two aborts
_STOP_SECONDS = 5.0  # for a turn that Atomic stops
_REASON_SECONDS = 2.0  # for the error of a turn that ended without an answer


class TurnRunner:
    """Sends a prompt and handles all events of its turn."""

    def __init__(
        self, api: Api, router: Router, inbox: Inbox, folder: str, options: SessionOptions, turn: Turn, prompt: str
    ) -> None:
        self._api = api
        self._inbox = inbox
        self._folder = folder
        self._turn = turn
        self._prompt = prompt
        self._stopping: asyncio.Task[None] | None = None
        self._dialogue = Dialogue(api, folder, options.ask, emit=self._emit_question, fail=inbox.put)
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
        """Run the turn. Raise ProviderError if the server is lost, and errors of the
        caller's `ask`.
        """
        self.translator.wants_value = wants_value
        try:
            await self._api.prompt(self._folder, self._inbox.session, {"messageID": self._prompt, **body})
            while not self._turn.over:
                await self._next()
        finally:
            self.translator.leave()
            if self._stopping is not None:
                await cancel_all(self._stopping)
            await self._dialogue.close()

    async def _next(self) -> None:
        try:
            async with asyncio.timeout(_REASON_SECONDS if self.translator.is_idle_without_answer else None):
                item = await self._inbox.take()
        except TimeoutError:
            self.translator.finish()
            return
        if isinstance(item, Event):
            self._take(item)
        else:
            await self._catch_up()

    def _take(self, event: Event) -> None:
        try:
            match event.type:
                case "question.asked":
                    self._dialogue.question(messages.read(event.properties, messages.QuestionRequest))
                case "permission.asked":
                    self._dialogue.permission(messages.read(event.properties, messages.PermissionRequest))
                case _:
                    self.translator.take(event)
        except msgspec.ValidationError:
            self._turn.note_unknown(event.type)

    def _emit_question(self, question: QuestionAsked, session: str) -> None:
        agents = self.translator.subagents
        agent = agents.of(session) if agents.knows(session) else None
        self._turn.emit(msgspec.structs.replace(question, agent=agent))

    def _stop(self) -> None:
        """Stop the turn on Atomic's side, for example at a limit."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._abort())

    async def _abort(self) -> None:
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await abort(self._api, self._folder, self._inbox.session, self._turn)
        except (TimeoutError, ProviderError):
            self.translator.finish()

    async def _catch_up(self) -> None:
        """Bring the translator up to date after a gap.

        Raise ProviderError if the server does not answer.
        """
        api = self._api
        folder = self._folder
        session = self._inbox.session
        translator = self.translator
        translator.note_gap()
        found = await api.messages(folder, session, back_to=self._prompt)
        starts = [at for at, message in enumerate(found) if message.info.id == self._prompt]
        if starts:  # else the prompt is not started yet
            own = found[starts[0] :]
            self._take_messages(session, own)
            await self._take_children(session, own[0].info.time.created)
            translator.take_plan(session, await api.todos(folder, session))
        for question in await api.questions(folder):
            if translator.subagents.knows(question.session):
                self._dialogue.question(question)
        for permission in await api.permissions(folder):
            if translator.subagents.knows(permission.session):
                self._dialogue.permission(permission)
        if session in await api.busy(folder):
            translator.take_work()
        else:
            translator.take_idle(session)

    def _take_messages(self, session: str, found: list[messages.MessageWithParts]) -> None:
        for message in found:
            self.translator.take_message(session, message.info)
            for part in message.parts:
                self.translator.take_part(session, part)

    async def _take_children(self, session: str, since: float) -> None:
        """Do the same for all sub-agents.

        Skip a resumed one's messages of earlier turns.
        """
        for child in await self._api.children(self._folder, session):
            if self.translator.subagents.knows(child.id):
                found = await self._api.messages(self._folder, child.id)
                self._take_messages(child.id, [one for one in found if one.info.time.created >= since])
                await self._take_children(child.id, since)


async def abort(api: Api, folder: str, session: str, turn: Turn) -> None:
    """Abort a turn repeatedly: an abort before its prompt is started has no effect."""
    while not turn.over:
        await api.abort(folder, session)
        await turn.wait_over(_ABORT_INTERVAL)
