"""After a gap in the stream: ask the server what happened meanwhile, and tell what was not told."""

from __future__ import annotations

from atomic.providers.opencode import wire
from atomic.providers.opencode.api import Api
from atomic.providers.opencode.dialogue import Dialogue
from atomic.providers.opencode.translate import Translator


async def catch_up(
    api: Api, folder: str, session: str, prompt: str, translator: Translator, dialogue: Dialogue
) -> None:
    """Raises ProviderError where the server does not answer."""
    translator.missed_something()
    messages = _from_prompt(await api.messages(folder, session, back_to=prompt), prompt)
    if messages:
        _tell(translator, session, messages)
        await _tell_children(api, folder, session, messages[0].info.time.created, translator)
        translator.take_plan(session, await api.todos(folder, session))
    await _answer(api, folder, translator, dialogue)
    busy = await api.busy(folder)
    if session in busy:
        translator.take_work()
    else:
        translator.take_idle(session)


def _from_prompt(messages: list[wire.MessageWithParts], prompt: str) -> list[wire.MessageWithParts]:
    """What belongs to this turn; nothing if the prompt was not taken up yet."""
    places = [place for place, message in enumerate(messages) if message.info.id == prompt]
    return messages[places[0] :] if places else []


def _tell(translator: Translator, session: str, messages: list[wire.MessageWithParts]) -> None:
    for message in messages:
        translator.take_message(session, message.info)
        for part in message.parts:
            translator.take_part(session, part)


async def _tell_children(api: Api, folder: str, session: str, since: float, translator: Translator) -> None:
    """Sub-agents, and theirs; one that was taken up again has older messages, which were told long ago."""
    for child in await api.children(folder, session):
        if translator.subagents.knows(child.id):
            messages = await api.messages(folder, child.id)
            _tell(translator, child.id, [message for message in messages if message.info.time.created >= since])
            await _tell_children(api, folder, child.id, since, translator)


async def _answer(api: Api, folder: str, translator: Translator, dialogue: Dialogue) -> None:
    for question in await api.questions(folder):
        if translator.subagents.knows(question.session):
            dialogue.question(question)
    for permission in await api.permissions(folder):
        if translator.subagents.knows(permission.session):
            dialogue.permission(permission)
