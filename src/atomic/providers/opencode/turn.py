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
from atomic.providers.opencode.router import Event, Inbox, Router
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
            await catch_up(self._api, self._folder, self._inbox.session, self._prompt, self.translator, self._dialogue)

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


async def abort(api: Api, folder: str, session: str, turn: Turn) -> None:
    """Abort a turn repeatedly: an abort before its prompt is started has no effect."""
    while not turn.over:
        await api.abort(folder, session)
        await turn.wait_over(_ABORT_INTERVAL)


async def catch_up(
    api: Api, folder: str, session: str, prompt: str, translator: Translator, dialogue: Dialogue
) -> None:
    """Bring the translator up to date.

    Raise ProviderError if the server does not answer.
    """
    translator.note_gap()
    messages = _from_prompt(await api.messages(folder, session, back_to=prompt), prompt)
    if messages:
        _take_messages(translator, session, messages)
        await _take_children(api, folder, session, messages[0].info.time.created, translator)
        translator.take_plan(session, await api.todos(folder, session))
    await _answer(api, folder, translator, dialogue)
    busy = await api.busy(folder)
    if session in busy:
        translator.take_work()
    else:
        translator.take_idle(session)


def _from_prompt(messages: list[messages.MessageWithParts], prompt: str) -> list[messages.MessageWithParts]:
    """Return the messages of this turn; none if the prompt is not started yet."""
    places = [place for place, message in enumerate(messages) if message.info.id == prompt]
    return messages[places[0] :] if places else []


def _take_messages(translator: Translator, session: str, messages: list[messages.MessageWithParts]) -> None:
    for message in messages:
        translator.take_message(session, message.info)
        for part in message.parts:
            translator.take_part(session, part)


async def _take_children(api: Api, folder: str, session: str, since: float, translator: Translator) -> None:
    """Do the same for all sub-agents.

    Skip a resumed one's messages of earlier turns.
    """
    for child in await api.children(folder, session):
        if translator.subagents.knows(child.id):
            messages = await api.messages(folder, child.id)
            _take_messages(
                translator, child.id, [message for message in messages if message.info.time.created >= since]
            )
            await _take_children(api, folder, child.id, since, translator)


async def _answer(api: Api, folder: str, translator: Translator, dialogue: Dialogue) -> None:
    for question in await api.questions(folder):
        if translator.subagents.knows(question.session):
            dialogue.question(question)
    for permission in await api.permissions(folder):
        if translator.subagents.knows(permission.session):
            dialogue.permission(permission)
