"""The journals in memory and on the disk give the same results for every sequence of calls."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from atomic.base.errors import AtomicError
from atomic.graph.engine.journal import History, MemoryJournal, Row, RunLog
from atomic.sessions import SqliteJournal
from tests.sessions.rows import ended_row, resumed_row, start_row, started_row, step_row

NAMES = ("one", "two", "three")


class Journals(RuleBasedStateMachine):
    """Does everything twice and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.disk = SqliteJournal(Path(self.folder.name) / "journal.db")
        self.memory = MemoryJournal()
        self.logs: dict[str, tuple[RunLog, RunLog]] = {}
        self.forks: dict[str, str] = {}  # the id in memory -> the id on the disk
        self.rows: dict[str, int] = {}
        self.steps: dict[str, int] = {}

    def teardown(self) -> None:
        self.disk.close()
        self.folder.cleanup()

    def both(self, action: Callable[[Any, Callable[[str], str]], Any]) -> tuple[Any, Any]:
        """Call both journals and compare the results or the kinds of errors."""
        answers: list[Any] = []
        for journal, ids in ((self.memory, dict[str, str]()), (self.disk, self.forks)):
            try:
                answers.append(action(journal, lambda name, ids=ids: ids.get(name, name)))
            except AtomicError as error:
                answers.append(type(error))
        memory, disk = answers
        assert isinstance(memory, type) == isinstance(disk, type)
        return memory, disk

    @initialize()
    def begin(self) -> None:
        self.create("one")

    @rule(name=st.sampled_from(NAMES))
    def create(self, name: str) -> None:
        logs = self.both(lambda journal, _: journal.create(name, start_row(name)))
        if not isinstance(logs[0], type):
            self.logs[name] = logs
            self.rows[name] = 1
            self.steps[name] = 0
        else:
            assert logs[0] is logs[1]

    @precondition(lambda self: bool(self.logs))
    @rule(data=st.data(), kinds=st.lists(st.sampled_from("sfjwe"), max_size=4), sync=st.booleans())
    def append(self, data: st.DataObject, kinds: list[str], sync: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.logs)))
        rows: list[Row] = []
        for kind in kinds:
            if kind == "s":
                self.steps[name] += 1
            rows.append(
                {
                    "s": step_row(self.steps[name], n=self.steps[name]),
                    "f": step_row(None, status="failed"),
                    "j": resumed_row(),
                    "w": started_row("step"),
                    "e": ended_row("paused"),
                }[kind]
            )
        for log in self.logs[name]:
            log.append(rows, sync=sync)
        self.rows[name] += len(rows)

    @precondition(lambda self: bool(self.logs))
    @rule(data=st.data())
    def snapshot(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.logs)))
        for log in self.logs[name]:
            log.snapshot(self.steps[name], str(self.rows[name]).encode())

    @precondition(lambda self: bool(self.logs))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        for log in self.logs.pop(data.draw(st.sampled_from(sorted(self.logs)))):
            log.release()

    @rule(data=st.data())
    def acquire(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from((*NAMES, *self.forks)))
        logs = self.both(lambda journal, name_of: journal.acquire(name_of(name)))
        if isinstance(logs[0], type):
            assert logs[0] is logs[1]
        else:
            self.logs[name] = logs

    @rule()
    def reopen(self) -> None:
        path = self.disk.path
        self.disk.close()
        self.memory.close()
        self.logs.clear()
        self.disk = SqliteJournal(path)
        assert self.disk.recovered is None

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from((*NAMES, *self.forks)))
        assert len(set(self.both(lambda journal, name_of: journal.delete(name_of(name))))) == 1

    @rule(data=st.data(), at=st.none() | st.integers(-1, 12))
    def fork(self, data: st.DataObject, at: int | None) -> None:
        name = data.draw(st.sampled_from((*NAMES, *self.forks)))
        memory, disk = self.both(lambda journal, name_of: journal.fork(name_of(name), at=at))
        if isinstance(memory, type):
            assert memory is disk
        else:
            self.forks[memory] = disk
            rows = self.memory.history(memory).rows
            self.rows[memory] = 1 + len(rows)
            self.steps[memory] = max((row.step for row in rows if row.step), default=0)

    @rule(data=st.data(), at=st.none() | st.integers(-1, 12))
    def read(self, data: st.DataObject, at: int | None) -> None:
        name = data.draw(st.sampled_from((*NAMES, *self.forks)))
        memory, disk = self.both(lambda journal, name_of: journal.history(name_of(name), at=at))
        if isinstance(memory, type):
            assert memory is disk
        else:
            self.compare(name, memory, disk)

    def compare(self, name: str, memory: History, disk: History) -> None:
        if name not in self.forks:
            assert memory.start == disk.start
        # A snapshot has the number of rows before it, including the first.
        spared = 0 if disk.snapshot is None else int(disk.snapshot) - 1
        assert spared <= len(memory.rows)
        assert disk.rows == memory.rows[spared:]

    @invariant()
    def lists_and_records_agree(self) -> None:
        def told(journal: Any) -> list[tuple[Any, ...]]:
            return [(run.graph, run.status, run.steps) for run in journal.list()]

        assert told(self.memory) == told(self.disk)
        names = [(run.execution_id, self.forks.get(run.execution_id, run.execution_id)) for run in self.memory.list()]
        assert [run.execution_id for run in self.disk.list()] == [disk for _, disk in names]
        for memory, disk in names:
            pairs = zip(self.memory.records(memory), self.disk.records(disk), strict=True)
            assert all(
                (one.step, one.update, one.started) == (other.step, other.update, other.started) for one, other in pairs
            )


TestJournals = Journals.TestCase
TestJournals.settings = settings(max_examples=40, stateful_step_count=30)
