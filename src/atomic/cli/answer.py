"""`atomic answer ID [QUESTION] ANSWER`: answer a run's question from any terminal, also
days later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.cli.last_run import is_run, require_asking_run
from atomic.cli.resume import Answers, check_not_cancelled, resume_run, session_of
from atomic.cli.run_host import HostedRun, host_run, is_quiet, read_flags
from atomic.cli.streams import json_line, put, tell
from atomic.cli.terminal_questions import WrongAnswerError, read_answer
from atomic.config import atomic_home
from atomic.graph import RunNotFoundError
from atomic.graph.engine.history import RunHistory
from atomic.questions import AnswerError, Question, read_data
from atomic.runs.events import Warning
from atomic.runs.host import Answer, Person
from atomic.sessions.errors import NoSessionIdError, SessionError
from atomic.sessions.inbox import POLL_SECONDS
from atomic.sessions.model import OpenQuestion
from atomic.sessions.store import Session, SessionStore, shown
from atomic.wiring import RunFlags

OWNER_SECONDS = 3.0  # after that time we assume that the run's owner will read the answer


def answer_command(arguments: Arguments) -> int:
    """Record the answer, and continue the run here if no process owns it."""
    flags = read_flags(arguments)
    as_json = arguments.has("--json")
    quiet = is_quiet(arguments)
    session, words = _read_words(arguments)
    check_not_cancelled(session)
    try:
        question, answer = _parse(session, words)
    except UsageError:
        if not _is_given_already(session, words):
            raise
        if arguments.has("--no-resume") or session.is_owned:
            return report_saved(session, arguments, "the answer")
        return _resume(session, flags, None, as_json=as_json, quiet=quiet)
    if arguments.has("--no-resume"):
        session.leave_answer(question.id, answer)
        return report_saved(session, arguments, "the answer")
    if session.is_owned and asyncio.run(_hand_over(session, question, answer)):
        return report_saved(session, arguments, "the answer")
    # Save the answer first. If this process is killed now, the next resume finds it.
    session.put_answer(question.id, answer)
    code = _resume(session, flags, {question.id: answer}, as_json=as_json, quiet=quiet)
    session.reload()
    if not session.is_owned and question.id in session.inbox.answers():
        session.inbox.forget({question.id})  # the run did not start, so nothing took the answer
        tell("the answer was not recorded")
    return code


def _read_words(arguments: Arguments) -> tuple[Session, Sequence[str]]:
    """Return the run, and the other words: the question if it is named, and the answer.

    Without an id it is the run of this folder that waits for an answer.
    """
    words = arguments.words
    if is_run(words[0]):
        if len(words) == 1:
            raise UsageError(f"The answer is missing: atomic answer {words[0]} ANSWER")
        return session_of(arguments), words[1:]
    if len(words) < 3 and not (len(words) == 2 and _is_id(words[0])):
        return require_asking_run(), words
    return session_of(arguments), words[1:]


def _is_id(word: str) -> bool:
    """Return whether a word looks like the id of a run, so that an unknown one is an error."""
    try:
        SessionStore(atomic_home()).find(word)
    except NoSessionIdError:
        return False
    except SessionError:
        return True
    return True


def _resume(session: Session, flags: RunFlags, answers: Answers | None, *, as_json: bool, quiet: bool) -> int:
    async def start(person: Person | None) -> HostedRun:
        return await resume_run(session, flags, person, answers)

    return host_run(start, as_json=as_json, quiet=quiet)


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
    given: Any = _read(question, words[-1])
    if question.returns is not None:
        given = read_data(Question(question.text, id=name, returns=question.returns), given)
    if given == answer:
        return True
    said = answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
    if question.returns is None:
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
        question.id, question.text, labels, multi_select=question.multi_select, default=question.default,
        returns=question.returns,
    )  # fmt: skip


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
    """Return an answer to give. JSON for a question with a type stays a text, which the run reads."""
    question = Question(
        asked.text, options=list(asked.options), default=asked.default, multi_select=asked.multi_select, id=asked.id,
        returns=asked.returns,
    )  # fmt: skip
    try:
        labels = read_answer(question, text)
        if asked.returns is not None:
            read_data(question, labels if asked.multi_select else labels[0])
    except (WrongAnswerError, AnswerError) as error:
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


def report_saved(session: Session, arguments: Arguments, what: str, *, taken_by: int | None = None) -> int:
    """Print that an answer or a signal is saved, and which flags have no effect because the run
    does not continue here.
    """
    owner = session.record.owner
    if taken_by is None and owner is not None and session.is_owned:
        taken_by = owner.pid
    next_step = f"atomic resume {session.id}"
    if taken_by is not None:
        next_step = f"process {taken_by} continues the run with it"
    text = f"{what} is saved: {next_step}"
    given = [flag.name for flag in arguments.flags if arguments.has(flag.name)]
    unused = ", ".join(name for name in given if name not in ("--json", "--quiet", "--no-resume"))
    if unused:
        text += f" (without effect: {unused}; pass them to atomic resume)"
    if arguments.has("--json"):
        put(json_line(Warning(run=session.id, seq=1, time=time.time(), text=text)))
    else:
        tell(text)
    return ExitCode.DONE
