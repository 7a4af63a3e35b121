"""Request the events that were missed during a gap in the stream, and emit them."""

from __future__ import annotations

from atomic.providers.opencode import messages
from atomic.providers.opencode.api import Api
from atomic.providers.opencode.questions import Dialogue
from atomic.providers.opencode.translate import Translator


async def catch_up(
    api: Api, folder: str, session: str, prompt: str, translator: Translator, dialogue: Dialogue
) -> None:
    """Bring the translator up to date. Raise ProviderError if the server does not answer."""
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
    """Do the same for all sub-agents; skip a resumed one's messages of earlier turns."""
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
