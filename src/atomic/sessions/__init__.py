"""The folder of a session: record, journal, logs and inbox of a run.

This package knows no agents and no workflows. Start with `store`; the journal starts in
`journal`.

Public modules: `durability`, `errors`, `facts`, `files`, `history`, `html`, `inbox`,
`model`, `report`, `started`, `store`.
"""

from typing import TYPE_CHECKING, Any

from atomic.sessions.errors import Recovery
from atomic.sessions.journal import SqliteJournal

if TYPE_CHECKING:
    from atomic.sessions.errors import SessionError
    from atomic.sessions.inbox import Inbox, Message
    from atomic.sessions.model import Cost, OpenQuestion, OwnerInfo, SessionRecord, SessionStatus
    from atomic.sessions.store import Session, SessionStore

# Imported on use: an author who only needs a journal does not pay for the rest.
_MODULES = {
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
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
