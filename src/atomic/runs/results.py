"""The result of a run: in its last event, in `session.json`, and for `sessions result`.

The journal has a result of any size. The last event and `session.json` have it up to
`MOST_IN_EVENT` bytes of JSON; beyond that they only say that there is one.
"""

from __future__ import annotations

from math import isinf, isnan
from typing import Any, cast

import msgspec

from atomic.base.redaction import Redactor
from atomic.graph import JournalError, RunNotFoundError, RunResult
from atomic.graph.engine.errors import StateError
from atomic.graph.engine.state import encode_value
from atomic.sessions.model import SessionRecord
from atomic.sessions.store import Session

MOST_IN_EVENT = 64 * 1024  # bytes of JSON
REPORT = "report.md"  # a workflow may write it at every end


class KeptResult(msgspec.Struct, frozen=True):
    """A result as `run_ended` and `session.json` have it."""

    result: Any = None
    result_omitted: bool = False  # it is larger than they keep: `atomic sessions result` prints it


def plain_result(result: RunResult[Any] | None, redactor: Redactor) -> Any:
    """Return the result of a run as plain data without secrets. None if there is none."""
    if result is None or result.result is None:
        return None
    try:
        return redactor.data(_for_json(msgspec.msgpack.decode(encode_value(result.result, "result"))))
    except StateError:  # the engine has encoded it before; only a value that changes itself gets here
        return None


def _for_json(value: Any) -> Any:
    """Return plain data with a text for each number that JSON cannot write: "NaN",
    "Infinity" or "-Infinity". The encoder would write null.
    """
    match value:
        case float() if isnan(value):
            return "NaN"
        case float() if isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {key: _for_json(part) for key, part in cast("dict[Any, Any]", value).items()}
        case list():
            return [_for_json(part) for part in cast("list[Any]", value)]
        case _:
            return value


def kept_of(result: Any) -> KeptResult:
    """Return a result, or that it is too large to be kept twice."""
    if result is not None and len(as_json(result)) > MOST_IN_EVENT:
        return KeptResult(result_omitted=True)
    return KeptResult(result)


def as_json(result: Any) -> bytes:
    """Return a result as JSON. Keys that are no texts become texts."""
    return msgspec.json.encode(msgspec.to_builtins(result, str_keys=True, builtin_types=()))


def as_text(result: Any) -> str:
    """Return a result as it is printed: a text as it is, other data as JSON."""
    return result if isinstance(result, str) else as_json(result).decode()


def read_result(session: Session) -> Any:
    """Return the result of a run that has ended, of any size; None if it has none.

    Raises JournalError.
    """
    from atomic.graph.engine.function_history import history_of

    kept: SessionRecord = session.record
    if not session.journal_path.is_file():  # opening it would create one
        return kept.result
    journal = session.journal()
    try:
        ended = history_of(journal.history(session.id)).ended
    except RunNotFoundError:
        return kept.result
    finally:
        journal.close()
    if ended is not None and ended.result is not None:
        return _for_json(ended.result)
    return kept.result if ended is not None else None


def kept_result(session: Session) -> KeptResult:
    """Return the result of a run that has ended, as its last event had it."""
    try:
        return kept_of(read_result(session))
    except JournalError:  # the run itself reports a damaged journal
        return KeptResult(session.record.result, session.record.result_omitted)


def end_fields(session: Session, kept: KeptResult) -> dict[str, Any]:
    """Return the fields of the last event that tell what came of a run."""
    report = session.dir / REPORT
    return {
        "result": kept.result,
        "result_omitted": kept.result_omitted,
        "cost": session.record.cost.usd,
        "report": str(report) if report.is_file() else "",
        "session_dir": str(session.dir),
    }
