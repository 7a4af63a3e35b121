"""The last end of a run, as its log has it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from atomic.base.untrusted_files import open_regular
from atomic.sessions.store import Session


def find_last_end(session: Session) -> dict[str, Any]:
    """Return the fields of the last `run_ended` in the log; empty if the run continued
    after it.
    """
    found: dict[str, Any] = {}
    try:
        with open_regular(session.logs.events) as log:
            for line in log:
                if b'"run_started"' in line:
                    found = {}
                elif b'"run_ended"' in line:
                    with suppress(msgspec.DecodeError, UnicodeDecodeError):  # cut off by a kill
                        found = msgspec.json.decode(line, type=dict[str, Any])
    except OSError:
        return {}
    return found


def find_reason(session: Session) -> str:
    """Return why a run ended last, for people; empty if its log does not say."""
    ended = find_last_end(session)
    return str(ended.get("plain") or ended.get("message") or "")
