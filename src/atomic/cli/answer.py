"""`atomic answer ID [QUESTION] ANSWER`: from any terminal, days later too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from atomic.cli.arguments import Arguments
from atomic.cli.asking import WrongAnswerError, read_answer
from atomic.cli.errors import OK, UsageError
from atomic.cli.resume import find_session, go_on
from atomic.cli.running import RunFlags, host, read_flags
from atomic.cli.streams import json_line, put, tell
from atomic.hosts import leave_answer, put_answer
from atomic.questions import Question
from atomic.sessions.inbox import POLL_SECONDS
from atomic.sessions.model import OpenQuestion
from atomic.sessions.store import Session
from atomic.workflows.events import Warning
from atomic.workflows.executor import WorkflowRun
from atomic.workflows.host_runtime import Person

PATIENCE = 3.0  # seconds until we believe that the run's owner will read the answer


def answer_command(arguments: Arguments) -> int:
    """Record the answer; if nobody owns the run it goes on here."""
    flags = read_flags(arguments)
    session = find_session(arguments.words[0])
    question, answer = _meant(session.record.questions, arguments.words[1:])
    if arguments.has("--no-resume") or (session.is_owned and asyncio.run(_hand_over(session, question, answer))):
        if arguments.has("--no-resume"):
            leave_answer(session, question.id, answer)
        return _tell_kept(session, _unheard(arguments), as_json=flags.as_json)
    return _resume(session, flags, question, answer)


def _resume(session: Session, flags: RunFlags, question: OpenQuestion, answer: str | list[str]) -> int:
    put_answer(session, question.id, answer)  # first: where the run cannot go on now, the next resume finds it

    async def start(person: Person | None) -> WorkflowRun:
        return await go_on(session, flags, person, {question.id: answer})

    return host(start, as_json=flags.as_json)


def _meant(asked: Sequence[OpenQuestion], words: Sequence[str]) -> tuple[OpenQuestion, str | list[str]]:
    """The question that is answered, and the answer. Raises UsageError."""
    if not asked:
        raise UsageError("This run has asked nothing")
    by_id = {question.id: question for question in asked}
    named = by_id.get(words[0]) if len(words) > 1 else asked[0] if len(asked) == 1 else None
    if named is None:
        known = "; ".join(f'{question.id}: "{question.text}"' for question in asked)
        what = f'There is no open question "{words[0]}"' if len(words) > 1 else "Say which question you answer"
        raise UsageError(f"{what} (open: {known})")
    return named, _read(named, words[-1])


def _read(asked: OpenQuestion, said: str) -> str | list[str]:
    question = Question(asked.text, options=list(asked.options), default=asked.default, multi_select=asked.multi_select)
    try:
        labels = read_answer(question, said)
    except WrongAnswerError as error:
        raise UsageError(str(error)) from error
    return labels if asked.multi_select else labels[0]


async def _hand_over(session: Session, question: OpenQuestion, answer: str | list[str]) -> bool:
    """Give the answer to the run's owner; False if that has gone before it read it."""
    leave_answer(session, question.id, answer)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS / 2)
        if question.id not in session.inbox.answers():
            return True
        session.reload()
        if not session.is_owned:
            return False
    return True


def _unheard(arguments: Arguments) -> str:
    """The flags that say how a run goes on: without effect where it does not go on here."""
    flags = [flag.name for flag in arguments.flags if arguments.has(flag.name)]
    return ", ".join(name for name in flags if name not in ("--json", "--no-resume"))


def _tell_kept(session: Session, unheard: str, *, as_json: bool) -> int:
    owner = session.record.owner
    who = f"process {owner.pid} goes on with it" if owner and session.is_owned else f"atomic resume {session.id}"
    text = f"the answer is kept: {who}"
    if unheard:
        text += f" (without effect here: {unheard}; atomic resume takes them)"
    if as_json:
        event = Warning(run=session.id, seq=1, time=time.time(), text=text)
        put(json_line(event))
    else:
        tell(text)
    return OK
