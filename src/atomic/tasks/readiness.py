"""Track which tasks may start now, through all changes of statuses.

The cost of a change is proportional to the tasks that wait for the changed one, and
after a failure to all tasks that depend on it. Tasks are numbered by position, and all
walks are loops, so that no chain exceeds the stack.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from atomic.tasks.cycles import Cycle, find_cycles
from atomic.tasks.task import ProblemKind, Task, TaskProblem, TaskStatus, named

MAX_SHOWN = 100  # ids of a cycle in a message


class Readiness:
    """The dependencies of tasks with unique ids, and the tasks that they allow to
    start.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._ids = [task.id for task in tasks]
        self._status = [task.status for task in tasks]
        self._blockers: list[list[int]] = []
        self._unknown: dict[int, list[str]] = {}
        self._own: list[int] = []  # tasks that name themselves
        self._resolve(tasks)
        self._dependents: list[list[int]] = [[] for _ in tasks]
        for i, blockers in enumerate(self._blockers):
            for blocker in blockers:
                self._dependents[blocker].append(i)
        cycles = [Cycle([i], [i]) for i in self._own] + find_cycles(self._blockers, self._dependents)
        self._cycles = [(cycle.members, self._cycle_text(cycle)) for cycle in cycles]
        self._cycle_of = {i: text for members, text in self._cycles for i in members}

        # A task that is read as in progress was interrupted and may start again. Only a
        # change of its status means that a worker has it.
        self._may_start = bytearray(s is TaskStatus.PENDING or s is TaskStatus.IN_PROGRESS for s in self._status)
        self._after_failure = bytearray(len(tasks))
        self._spread(self._failed())
        self._open = [sum(not self._status[b].is_done for b in blockers) for blockers in self._blockers]
        for i in self._unknown.keys() | self._cycle_of.keys():
            self._open[i] += 1  # such a blocker is never done

        # Ranks are small integers, which are cheap to sort and to keep in sets.
        urgency = [(task.priority is None, task.priority or 0) for task in tasks]
        self._by_rank = sorted(range(len(tasks)), key=urgency.__getitem__)
        self._rank = [0] * len(tasks)
        for rank, i in enumerate(self._by_rank):
            self._rank[i] = rank
        self._ready: set[int] = set()
        self._in_order: list[int] | None = None
        for i in range(len(tasks)):
            self._refresh(i)

    def ready(self) -> list[int]:
        """Return the numbers of tasks that may start, most urgent first."""
        if self._in_order is None:
            self._in_order = [self._by_rank[rank] for rank in sorted(self._ready)]
        return self._in_order

    def change(self, i: int, status: TaskStatus) -> None:
        """Update the status of a task."""
        before = self._status[i]
        self._status[i] = status
        self._may_start[i] = status is TaskStatus.PENDING
        self._refresh(i)
        if before.is_done != status.is_done:
            step = -1 if status.is_done else 1
            for dependent in self._dependents[i]:
                self._open[dependent] += step
                self._refresh(dependent)
        if before is not TaskStatus.FAILED and status is TaskStatus.FAILED:
            for dependent in self._spread([i]):
                self._refresh(dependent)
        elif before is TaskStatus.FAILED and status is not TaskStatus.FAILED:
            self._forgive()

    def waiting(self) -> dict[str, str]:
        """Return why tasks cannot start, by id, for all that are not ready, running or
        ended.
        """
        causes = self._causes()
        return {
            self._ids[i]: self._reason(i, causes.get(i))
            for i, status in enumerate(self._status)
            if (self._may_start[i] or status is TaskStatus.BLOCKED) and self._rank[i] not in self._ready
        }

    def problems(self) -> list[TaskProblem]:
        """Return the problems because of which tasks are never ready, in the order of
        the tasks.
        """
        found = [(i, ProblemKind.UNKNOWN_BLOCKER, self._unknown_text(i)) for i in self._unknown]
        found += [(members[0], ProblemKind.CYCLE, text) for members, text in self._cycles]
        return [TaskProblem(self._ids[i], kind, message) for i, kind, message in sorted(found)]

    def _resolve(self, tasks: Sequence[Task]) -> None:
        number = {id: i for i, id in enumerate(self._ids)}
        for i, task in enumerate(tasks):
            known = [number[id] for id in task.blocked_by if id in number]
            if len(known) < len(task.blocked_by):
                self._unknown[i] = [id for id in task.blocked_by if id not in number]
            if i in known:
                self._own.append(i)
                known = [blocker for blocker in known if blocker != i]
            self._blockers.append(known)

    def _cycle_text(self, cycle: Cycle) -> str:
        ids = [self._ids[i] for i in cycle.way]
        shown = ids[:MAX_SHOWN]
        if len(ids) > len(shown):
            shown.append(f"({len(ids) - len(shown)} more)")
        text = f"cycle {' -> '.join([*shown, ids[0]])} (each waits for the next)"
        on_the_way = set(cycle.way)
        others = [self._ids[i] for i in cycle.members if i not in on_the_way]
        return f"{text}; other cycles go through {named(others)}" if others else text

    def _refresh(self, i: int) -> None:
        rank = self._rank[i]
        is_ready = self._may_start[i] and not self._open[i] and not self._after_failure[i]
        if is_ready and rank not in self._ready:
            self._ready.add(rank)
            self._in_order = None
        elif not is_ready and rank in self._ready:
            self._ready.remove(rank)
            self._in_order = None

    def _failed(self) -> list[int]:
        return [i for i, status in enumerate(self._status) if status is TaskStatus.FAILED]

    def _spread(self, failed: Iterable[int]) -> list[int]:
        """Mark all tasks that depend on failed ones, and return the newly marked ones."""
        marked: list[int] = []
        walk = list(failed)
        while walk:
            for dependent in self._dependents[walk.pop()]:
                if not self._after_failure[dependent]:
                    self._after_failure[dependent] = 1
                    marked.append(dependent)
                    walk.append(dependent)
        return marked

    def _forgive(self) -> None:
        """Mark all tasks again.

        Counting failures per task would be wrong where cycles are.
        """
        before = self._after_failure
        self._after_failure = bytearray(len(before))
        self._spread(self._failed())
        for i, (was, now) in enumerate(zip(before, self._after_failure, strict=True)):
            if was != now:
                self._refresh(i)

    def _causes(self) -> dict[int, int]:
        """Return the nearest failed task for each task that depends on one."""
        causes: dict[int, int] = {}
        walk = deque((i, i) for i in self._failed())
        while walk:
            i, cause = walk.popleft()
            for dependent in self._dependents[i]:
                if dependent not in causes:
                    causes[dependent] = cause
                    walk.append((dependent, cause))
        return causes

    def _reason(self, i: int, failed: int | None) -> str:
        reasons: list[str] = []
        if i in self._cycle_of:
            reasons.append(self._cycle_of[i])
        if i in self._unknown:
            reasons.append(self._unknown_text(i))
        if failed is not None:
            further_up = "" if failed in self._blockers[i] else ", further up the chain"
            reasons.append(f'"{self._ids[failed]}" failed{further_up}')
        if self._status[i] is TaskStatus.BLOCKED:
            reasons.append("marked as blocked")
        if not reasons:
            open = [self._ids[blocker] for blocker in self._blockers[i] if not self._status[blocker].is_done]
            reasons.append(f"waits for {named(open)}")
        return "; ".join(reasons)

    def _unknown_text(self, i: int) -> str:
        ids = self._unknown[i]
        return f"unknown blocker{'s' if len(ids) > 1 else ''} {named(ids)}"
