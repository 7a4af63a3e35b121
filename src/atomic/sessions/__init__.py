"""The session folder: what is kept of a run on the disk."""

from typing import TYPE_CHECKING, Any

from atomic.sessions.errors import Recovery
from atomic.sessions.journal import SqliteJournal

if TYPE_CHECKING:
    from atomic.sessions.errors import SessionError
    from atomic.sessions.inbox import Inbox, Message
    from atomic.sessions.model import Cost, OpenQuestion, OwnerInfo, SessionRecord, SessionStatus
    from atomic.sessions.store import Session, SessionStore

# The folder is only for those who run workflows: an author's import of a journal does not pay for it.
_PLACES = {
    "Cost": "model",
    "Inbox": "inbox",
    "Message": "inbox",
    "OpenQuestion": "model",
    "OwnerInfo": "model",
    "Session": "store",
    "SessionError": "errors",
    "SessionRecord": "model",
    "SessionStatus": "model",
    "SessionStore": "store",
}

__all__ = [
    "Cost",
    "Inbox",
    "Message",
    "OpenQuestion",
    "OwnerInfo",
    "Recovery",
    "Session",
    "SessionError",
    "SessionRecord",
    "SessionStatus",
    "SessionStore",
    "SqliteJournal",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
