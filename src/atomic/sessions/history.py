"""Reads the history of a run from its folder: steps, calls of agents, tasks.

It changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.base.untrusted_files import open_regular
from atomic.tasks import Task, TaskList, TasksError

if TYPE_CHECKING:
    from atomic.sessions.model import SessionRecord
    from atomic.sessions.store import Session

_LONGEST_LINE = 64 * 1024 * 1024  # bytes; Atomic writes no longer line
_CANCELLED = "cancelled"  # status of a step in the log that the end of the run has cut off
_SLACK = 1.0  # seconds by which a call may exceed the time of its step


class StepLook(msgspec.Struct, frozen=True, kw_only=True):
    """A step, as `sessions show --json` prints it.

    `cost` None: the price is unknown.
    """

    node: str
    step_id: str
    attempt: int
    status: str
    seconds: float
    cost: float | None = None
    started: float = 0.0  # Unix time
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
        """The node, the role if it differs, and the task."""
        role = self.role if self.role and self.role != self.node else ""
        return " ".join(part for part in (self.node, role, f"task {self.task}" if self.task else "") if part)


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The history of a run. `problem` names what could not be read.

    `killed` are the calls that ended with the process: they are only in the journal.
    """

    record: SessionRecord
    steps: Sequence[StepLook] = ()
    calls: Sequence[CallLook] = ()
    killed: Sequence[CallLook] = ()
    tasks: Sequence[Task] = ()
    problem: str = ""


def read_history(session: Session, record: SessionRecord) -> History:
    """Read the history of a run, also while it runs.

    Damaged parts are left out and reported.
    """
    calls: list[CallLook] = []
    no_calls = ""
    try:
        calls = list(read_calls(session.logs.calls))
    except OSError as error:
        no_calls = _unreadable(session.logs.calls, error)
    steps, problem = _steps(session, calls)
    tasks, more = _tasks(session.dir / "tasks.json")
    open_steps, no_events = _open_steps(session.logs.events, {(one.step_id, one.attempt) for one in steps})
    for step in open_steps:
        if step.status == _CANCELLED:
            # A completed run has cancelled it on purpose: another branch was faster.
            if record.status != "completed":
                steps.append(msgspec.structs.replace(step, status="interrupted"))
        elif record.status == "running":
            seconds = max(0.0, time.time() - step.started)
            steps.append(msgspec.structs.replace(step, status="running", seconds=seconds))
        else:
            steps.append(msgspec.structs.replace(step, status="interrupted"))
    return History(
        record=record, steps=steps, calls=calls, tasks=tasks, problem=problem or more or no_calls or no_events
    )


def objects_in(lines: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a log, one per line; a line that is cut short is skipped."""
    for line in lines:
        try:
            data = msgspec.json.decode(line) if line.strip() else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(data, dict):
            yield cast("dict[str, Any]", data)


def read_calls(path: Path) -> Iterator[CallLook]:
    """Yield the calls of agents in the order of their ends.

    Raises OSError if the log cannot be read.
    """
    for line in objects_in(_raw_lines(path)):
        usage = line.get("usage")
        figures: Mapping[str, Any] = cast("Mapping[str, Any]", usage) if isinstance(usage, Mapping) else {}
        seconds = number(line.get("seconds"))
        cost = figures.get("cost")
        names = ("node", "role", "task", "provider", "model", "reason")
        yield CallLook(
            started=(seconds_since_1970(line.get("time")) or 0.0) - seconds,  # `time` is when it ended
            seconds=seconds,
            **{name: str(line[name]) for name in names if line.get(name) is not None},
            tokens=int(number(figures.get("input")) + number(figures.get("output"))),
            cost=number(cost) if isinstance(cost, int | float) else None,
        )


def _unreadable(path: Path, error: OSError) -> str:
    return f"{path} cannot be read: {error.strerror or error}"


def seconds_since_1970(value: Any) -> float | None:
    """Return the Unix time of a number or an ISO 8601 text; None for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except ValueError:
        return None


def number(value: Any) -> float:
    """Return a number of a log; 0 for anything else and for negative ones."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 0.0


def _raw_lines(path: Path) -> Iterator[bytes]:
    try:
        with open_regular(path) as file:
            while line := file.readline(_LONGEST_LINE):
                yield line
    except (FileNotFoundError, NotADirectoryError):
        return


def _steps(session: Session, calls: Sequence[CallLook]) -> tuple[list[StepLook], str]:
    from atomic.graph.engine.errors import JournalError, RunNotFoundError

    if not session.journal_path.is_file():  # opening it would create one
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
    """Return the cost that the step reports, else the sum of its node's calls in that
    time.
    """
    usage: Mapping[str, float] = record.usage or {}
    cost = usage.get("cost")
    if isinstance(cost, int | float):
        return float(cost)
    first = record.started - _SLACK
    last = record.started + record.seconds + _SLACK
    own = [
        at
        for at, call in enumerate(calls)
        if at not in taken and call.node == record.node_id and first <= call.started + call.seconds <= last
    ]
    taken.update(own)
    costs = [cost for at in own if (cost := calls[at].cost) is not None]
    return sum(costs) if costs else None


def _open_steps(path: Path, finished: set[tuple[str, int]]) -> tuple[list[StepLook], str]:
    """Return the steps that have started and not finished, and why the log cannot be
    read.
    """
    try:
        begun = _begun_steps(_raw_lines(path))
    except OSError as error:
        return [], _unreadable(path, error)
    latest = {step.step_id: step for key, step in begun.items() if key not in finished}
    done = {step_id for step_id, _ in finished}
    return [step for step in latest.values() if step.step_id not in done], ""


def _begun_steps(lines: Iterable[bytes]) -> dict[tuple[str, int], StepLook]:
    """Return the attempts that have started and not ended by the log, and those that the
    end of a process has cancelled.
    """
    begun: dict[tuple[str, int], StepLook] = {}
    for raw in lines:
        if b'"node_started"' not in raw and b'"node_ended"' not in raw:
            continue  # most lines are activity of agents
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
        before = begun.pop((step.step_id, step.attempt), None)
        if line.get("type") == "node_started":
            begun[step.step_id, step.attempt] = step
        elif before is not None and line.get("status") == _CANCELLED:
            seconds = number(line.get("seconds"))
            begun[step.step_id, step.attempt] = msgspec.structs.replace(before, status=_CANCELLED, seconds=seconds)
    return begun


def _tasks(path: Path) -> tuple[Sequence[Task], str]:
    if not path.exists():
        return (), ""
    try:
        return TaskList.read(path).tasks, ""
    except TasksError as error:
        return (), str(error)
