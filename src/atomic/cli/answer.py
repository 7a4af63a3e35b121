"""`atomic answer ID [QUESTION] ANSWER`: answer a run's question from any terminal, also
days later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.cli.resume import Answers, check_not_cancelled, resume_run, session_of
from atomic.cli.run_host import HostedRun, host_run, read_flags
from atomic.cli.streams import json_line, put, tell
from atomic.cli.terminal_questions import WrongAnswerError, read_answer
from atomic.graph import RunNotFoundError
from atomic.graph.engine.history import RunHistory
from atomic.questions import Question
from atomic.runs.events import Warning
from atomic.runs.host import Answer, Person
from atomic.sessions.inbox import POLL_SECONDS
from atomic.sessions.model import OpenQuestion
from atomic.sessions.store import Session, shown
from atomic.wiring import RunFlags

OWNER_SECONDS = 3.0  # after that time we assume that the run's owner will read the answer


def answer_command(arguments: Arguments) -> int:
    """Record the answer, and continue the run here if no process owns it."""
    flags = read_flags(arguments)
    as_json = arguments.has("--json")
    session = session_of(arguments)
    check_not_cancelled(session)
    words = arguments.words[1:]
    try:
        question, answer = _parse(session, words)
    except UsageError:
        if not _is_given_already(session, words):
            raise
        if arguments.has("--no-resume") or session.is_owned:
            return _report_saved(session, arguments)
        return _resume(session, flags, None, as_json=as_json)
    if arguments.has("--no-resume"):
        session.leave_answer(question.id, answer)
        return _report_saved(session, arguments)
    if session.is_owned and asyncio.run(_hand_over(session, question, answer)):
        return _report_saved(session, arguments)
    # Save the answer first. If this process is killed now, the next resume finds it.
    session.put_answer(question.id, answer)
    code = _resume(session, flags, {question.id: answer}, as_json=as_json)
    session.reload()
    if not session.is_owned and question.id in session.inbox.answers():
        session.inbox.forget({question.id})  # the run did not start, so nothing took the answer
        tell("the answer was not recorded")
    return code


def _resume(session: Session, flags: RunFlags, answers: Answers | None, *, as_json: bool) -> int:
    async def start(person: Person | None) -> HostedRun:
        return await resume_run(session, flags, person, answers)

    return host_run(start, as_json=as_json)


def _is_given_already(session: Session, words: Sequence[str]) -> bool:
    """Return whether a closed question has this answer.

    Raises UsageError if it has another one.
    """
    known = _answered_questions(session)
    if len(words) > 1:
        name = words[0]
    elif known and not session.record.questions:
        name = list(known)[-1]
    else:
        return False
    if name not in known:
        return False
    question, answer = known[name]
    if _read(question, words[-1]) == answer:
        return True
    said = answer if isinstance(answer, str) else ", ".join(answer)
    raise UsageError(f'"{question.text}" is answered already: {said}')


def _answered_questions(session: Session) -> dict[str, tuple[OpenQuestion, Answer]]:
    """Return the questions that have an answer in the journal or in the inbox, the
    newest last.
    """
    if not session.journal_path.is_file():  # opening it would create one
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


def _parse(session: Session, words: Sequence[str]) -> tuple[OpenQuestion, Answer]:
    """Return the question and its answer. Raises UsageError."""
    asked = session.record.questions
    if not asked:
        raise UsageError(f"Run {session.id} has no open question: it is {shown(session.record).status}")
    named: OpenQuestion | None = None
    if len(words) > 1:
        named = next((question for question in asked if question.id == words[0]), None)
    elif len(asked) == 1:
        named = asked[0]
    if named is None:
        known = "; ".join(f'{question.id}: "{question.text}"' for question in asked)
        what = f'There is no open question "{words[0]}"' if len(words) > 1 else "Name the question that you answer"
        raise UsageError(f"{what} (open: {known})")
    return named, _read(named, words[-1])


def _read(asked: OpenQuestion, text: str) -> Answer:
    question = Question(asked.text, options=list(asked.options), default=asked.default, multi_select=asked.multi_select)
    try:
        labels = read_answer(question, text)
    except WrongAnswerError as error:
        raise UsageError(str(error)) from error
    return labels if asked.multi_select else labels[0]


async def _hand_over(session: Session, question: OpenQuestion, answer: Answer) -> bool:
    """Give the answer to the run's owner.

    Return False if the owner ended before it read the answer.
    """
    session.leave_answer(question.id, answer)
    deadline = time.monotonic() + OWNER_SECONDS
    while time.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS / 2)
        if question.id not in session.inbox.answers():
            return True
        session.reload()
        if not session.is_owned:
            return False
    return True


def _report_saved(session: Session, arguments: Arguments) -> int:
    """Print that the answer is saved, and which flags have no effect because the run
    does not continue here.
    """
    owner = session.record.owner
    next_step = f"atomic resume {session.id}"
    if owner is not None and session.is_owned:
        next_step = f"process {owner.pid} continues the run with it"
    text = f"the answer is saved: {next_step}"
    given = [flag.name for flag in arguments.flags if arguments.has(flag.name)]
    unused = ", ".join(name for name in given if name not in ("--json", "--no-resume"))
    if unused:
        text += f" (without effect: {unused}; pass them to atomic resume)"
    if arguments.has("--json"):
        put(json_line(Warning(run=session.id, seq=1, time=time.time(), text=text)))
    else:
        tell(text)
    return ExitCode.DONE
