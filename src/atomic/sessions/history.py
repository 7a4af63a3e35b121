"""What a session's folder tells of its run: the steps, the calls of agents, the tasks. It only looks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.bounded import open_regular
from atomic.tasks import Task, TaskList
from atomic.tasks.errors import TasksError

if TYPE_CHECKING:
    from atomic.sessions.model import SessionRecord
    from atomic.sessions.store import Session

_LONGEST_LINE = 64 * 1024 * 1024  # bytes; a longer one is no line of ours, and is read in pieces
_SLACK = 1.0  # seconds that a call's own time may lie outside of its step's


class StepLook(msgspec.Struct, frozen=True, kw_only=True):
    """A step, as `sessions show --json` tells it; `cost` None: nobody tells the price."""

    node: str
    step_id: str
    attempt: int
    status: str
    seconds: float
    cost: float | None = None
    started: float = 0.0  # seconds since 1970
    error: str | None = None


class CallLook(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an agent."""

    started: float
    seconds: float
    node: str = ""
    role: str = ""
    task: str = ""
    provider: str = ""
    model: str = ""
    reason: str = ""
    tokens: int = 0
    cost: float | None = None

    @property
    def who(self) -> str:
        """The node, the role if that says more, and the task."""
        role = self.role if self.role and self.role != self.node else ""
        return " ".join(part for part in (self.node, role, f"task {self.task}" if self.task else "") if part)


class History(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `problem` says what could not be read."""

    record: SessionRecord
    steps: Sequence[StepLook] = ()
    calls: Sequence[CallLook] = ()
    tasks: Sequence[Task] = ()
    problem: str = ""


def read_history(session: Session, record: SessionRecord) -> History:
    """Look at a run, also while it goes on. What is damaged is left out and said."""
    calls, no_calls = _calls(session.logs.calls)
    steps, problem = _steps(session, calls)
    tasks, more = _tasks(session.dir / "tasks.json")
    open_steps, no_events = _open_steps(session.logs.events, {(one.step_id, one.attempt) for one in steps})
    steps += [_running(step) if record.status == "running" else _interrupted(step) for step in open_steps]
    return History(
        record=record, steps=steps, calls=calls, tasks=tasks, problem=problem or more or no_calls or no_events
    )


def _running(step: StepLook) -> StepLook:
    return msgspec.structs.replace(step, status="running", seconds=max(0.0, time.time() - step.started))


def _interrupted(step: StepLook) -> StepLook:
    return msgspec.structs.replace(step, status="interrupted")


def objects_in(lines: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """The objects of a log, one a line; a line that a kill has cut short is passed over."""
    for line in lines:
        try:
            data = msgspec.json.decode(line) if line.strip() else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(data, dict):
            yield cast("dict[str, Any]", data)


def read_calls(path: Path) -> Iterator[CallLook]:
    """The calls of agents, in the order of their ends. Raises OSError where the log cannot be read."""
    for line in objects_in(_raw_lines(path)):
        usage = line.get("usage")
        figures: Mapping[str, Any] = cast("Mapping[str, Any]", usage) if isinstance(usage, Mapping) else {}
        seconds = number(line.get("seconds"))
        cost = figures.get("cost")
        yield CallLook(
            started=_start(line, seconds),
            seconds=seconds,
            **{name: _text(line.get(name)) for name in ("node", "role", "task", "provider", "model", "reason")},
            tokens=int(number(figures.get("input")) + number(figures.get("output"))),
            cost=number(cost) if isinstance(cost, int | float) else None,
        )


def _calls(path: Path) -> tuple[list[CallLook], str]:
    try:
        return list(read_calls(path)), ""
    except OSError as error:
        return [], _unreadable(path, error)


def _unreadable(path: Path, error: OSError) -> str:
    return f"{path} cannot be read: {error.strerror or error}"


def seconds_since_1970(value: Any) -> float | None:
    """A time of a log: a number, or ISO 8601."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except ValueError:
        return None


def number(value: Any) -> float:
    """A figure of a log; what is none, or below 0, is 0."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 0.0


def _raw_lines(path: Path) -> Iterator[bytes]:
    try:
        with open_regular(path) as file:
            while line := file.readline(_LONGEST_LINE):
                yield line
    except (FileNotFoundError, NotADirectoryError):
        return


def _start(line: Mapping[str, Any], seconds: float) -> float:
    """`time` is when the call ended: the line is written then."""
    return (seconds_since_1970(line.get("time")) or 0.0) - seconds


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _steps(session: Session, calls: Sequence[CallLook]) -> tuple[list[StepLook], str]:
    from atomic.graph.errors import JournalError, RunNotFoundError

    if not session.journal_path.is_file():  # looking must not make one
        return [], ""
    try:
        with closing(session.journal()) as journal:
            records = journal.records(session.id)
    except RunNotFoundError:
        return [], ""
    except JournalError as error:
        return [], str(error)
    taken: set[int] = set()
    return [_step(record, calls, taken) for record in records], ""


def _step(record: Any, calls: Sequence[CallLook], taken: set[int]) -> StepLook:
    return StepLook(
        node=record.node_id,
        step_id=record.step_id,
        attempt=record.attempt,
        status=str(record.status),
        seconds=record.seconds,
        cost=_cost(record, calls, taken),
        started=record.started,
        error=record.error,
    )


def _cost(record: Any, calls: Sequence[CallLook], taken: set[int]) -> float | None:
    """What the step's own figures say, else the sum of the calls that its node made meanwhile."""
    usage: Mapping[str, float] = record.usage or {}
    if isinstance(cost := usage.get("cost"), int | float):
        return float(cost)
    first, last = record.started - _SLACK, record.started + record.seconds + _SLACK
    own = [
        at
        for at, call in enumerate(calls)
        if at not in taken and call.node == record.node_id and first <= call.started + call.seconds <= last
    ]
    taken.update(own)
    costs = [cost for at in own if (cost := calls[at].cost) is not None]
    return sum(costs) if costs else None


def _open_steps(path: Path, finished: set[tuple[str, int]]) -> tuple[list[StepLook], str]:
    """Return the steps that have begun and of whose end nothing is written, and why the log cannot be read."""
    try:
        begun = _begun_steps(_raw_lines(path))
    except OSError as error:
        return [], _unreadable(path, error)
    latest = {step.step_id: step for key, step in begun.items() if key not in finished}
    done = {step_id for step_id, _ in finished}
    return [step for step in latest.values() if step.step_id not in done], ""


def _begun_steps(lines: Iterable[bytes]) -> dict[tuple[str, int], StepLook]:
    """The attempts that have begun and of whose end the log tells nothing."""
    begun: dict[tuple[str, int], StepLook] = {}
    for raw in lines:
        if b'"node_started"' not in raw and b'"node_ended"' not in raw:
            continue  # most lines are what agents say
        try:
            line = msgspec.json.decode(raw)
            step = StepLook(
                node=line["node"],
                step_id=line["step_id"],
                attempt=line["attempt"],
                status="",
                seconds=0.0,
                started=seconds_since_1970(line["time"]) or 0.0,
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
            continue
        begun.pop((step.step_id, step.attempt), None)
        if line.get("type") == "node_started":
            begun[step.step_id, step.attempt] = step
    return begun


def _tasks(path: Path) -> tuple[Sequence[Task], str]:
    if not path.exists():
        return (), ""
    try:
        return TaskList.read(path).tasks, ""
    except TasksError as error:
        return (), str(error)
