"""What a host says to the process that works on a run: stop, cancel, the answer to a question."""

from __future__ import annotations

from atomic.sessions.inbox import Message
from atomic.sessions.store import Session


def ask_to_stop(session: Session, *, cancel: bool = False) -> None:
    """Ask the owner to stop; where nobody owns the run nothing is asked."""
    owner = session.record.owner
    if owner is not None:
        session.inbox.put(Message("cancel" if cancel else "stop", to=f"{owner.pid}|{owner.mark}"))


def put_answer(session: Session, question: str, answer: str | list[str]) -> None:
    """Put an answer into the inbox, without secrets."""
    session.inbox.put(Message("answer", question=question, answer=session.redactor.data(answer)))


def leave_answer(session: Session, question: str, answer: str | list[str]) -> None:
    """Leave an answer in the inbox: the owner takes it from there, else the next resume does."""
    put_answer(session, question, answer)
    if not session.is_owned:
        session.save(questions=tuple(other for other in session.record.questions if other.id != question))
