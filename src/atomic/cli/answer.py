"""`atomic answer ID [QUESTION] ANSWER`: from any terminal, days later too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.cli.resume import find_session, go_on
from atomic.cli.run_host import RunFlags, host, read_flags
from atomic.cli.streams import json_line, put, tell
from atomic.cli.terminal_questions import WrongAnswerError, read_answer
from atomic.graph import RunNotFoundError
from atomic.graph.engine.history import RunHistory
from atomic.hosts import leave_answer, put_answer
from atomic.questions import Question
from atomic.runs.events import Warning
from atomic.runs.executor import WorkflowRun
from atomic.runs.host import Person
from atomic.sessions.inbox import POLL_SECONDS
from atomic.sessions.model import OpenQuestion
from atomic.sessions.store import Session

PATIENCE = 3.0  # seconds until we believe that the run's owner will read the answer


def answer_command(arguments: Arguments) -> int:
    """Record the answer; if nobody owns the run it goes on here."""
    flags = read_flags(arguments)
    session = find_session(arguments.words[0])
    words = arguments.words[1:]
    try:
        question, answer = _meant(session.record.questions, words)
    except UsageError:
        if not _is_given_already(session, words):
            raise
        return _given_already(session, arguments, flags)
    if arguments.has("--no-resume") or (session.is_owned and asyncio.run(_hand_over(session, question, answer))):
        if arguments.has("--no-resume"):
            leave_answer(session, question.id, answer)
        return _tell_kept(session, _unheard(arguments), as_json=flags.as_json)
    return _resume(session, flags, question, answer)


def _resume(session: Session, flags: RunFlags, question: OpenQuestion, answer: str | list[str]) -> int:
    put_answer(session, question.id, answer)  # first: where we are killed now, the next resume finds it

    async def start(person: Person | None) -> WorkflowRun:
        return await go_on(session, flags, person, {question.id: answer})

    code = host(start, as_json=flags.as_json)
    session.reload()
    if not session.is_owned and question.id in session.inbox.answers():
        session.inbox.forget({question.id})  # the run was refused, and so was the answer
        tell("the answer was not recorded")
    return code


def _given_already(session: Session, arguments: Arguments, flags: RunFlags) -> int:
    """The same answer a second time: it does what the first one did, as far as that is not done."""
    if arguments.has("--no-resume") or session.is_owned:
        return _tell_kept(session, _unheard(arguments), as_json=flags.as_json)

    async def start(person: Person | None) -> WorkflowRun:
        return await go_on(session, flags, person)

    return host(start, as_json=flags.as_json)


def _is_given_already(session: Session, words: Sequence[str]) -> bool:
    """Whether a question that is not open any more has this answer. Raises UsageError where it has another one."""
    known = _answered_questions(session)
    names: Sequence[str] = ()
    if len(words) > 1:
        names = words[:1]
    elif not session.record.questions:
        names = list(known)[-1:]
    for name in names:
        if name in known:
            question, answer = known[name]
            if _read(question, words[-1]) == answer:
                return True
            said = answer if isinstance(answer, str) else ", ".join(answer)
            raise UsageError(f'"{question.text}" is answered already: {said}')
    return False


def _answered_questions(session: Session) -> dict[str, tuple[OpenQuestion, str | list[str]]]:
    """What was asked and answered, the newest last: in the journal, or in the inbox for the next resume."""
    if not session.journal_path.is_file():  # looking must not make one
        return {}
    journal = session.journal()
    try:
        past = RunHistory(journal.history(session.id))
    except RunNotFoundError:
        return {}
    finally:
        journal.close()
    found = {id: (given.question, given.answer) for id, given in past.answers.items() if id not in past.asked}
    left = session.inbox.answers()
    found |= {id: (asked.question, left[id]) for id, asked in past.asked.items() if id in left}
    return {id: (_open_question(question), answer) for id, (question, answer) in found.items()}


def _open_question(question: Question) -> OpenQuestion:
    labels = [option.label for option in question.options]
    return OpenQuestion(
        question.id, question.text, labels, multi_select=question.multi_select, default=question.default
    )


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
    who = (
        f"process {owner.pid} continues the run with it"
        if owner and session.is_owned
        else f"atomic resume {session.id}"
    )
    text = f"the answer is saved: {who}"
    if unheard:
        text += f" (without effect: {unheard}; pass them to atomic resume)"
    if as_json:
        event = Warning(run=session.id, seq=1, time=time.time(), text=text)
        put(json_line(event))
    else:
        tell(text)
    return ExitCode.DONE
