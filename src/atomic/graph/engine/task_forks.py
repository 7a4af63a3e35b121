"""The tasks of a task loop, which start when they are ready."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from atomic.graph.engine.attempts import as_node_error
from atomic.graph.engine.author_functions import call
from atomic.graph.engine.control import Event, Postpone, RunStatus, Suspend
from atomic.graph.engine.errors import NodeError
from atomic.graph.engine.forks import Fork
from atomic.graph.engine.node import Dispatcher, TasksBody
from atomic.graph.engine.program import ForkOp
from atomic.graph.engine.run import Entry, Step, StepOwner
from atomic.graph.engine.state import Values
from atomic.graph.engine.token import Token

AnswerT = TypeVar("AnswerT")


class TasksFork(Fork):
    """Items that start when they are ready.

    A worker without one waits for another to finish.

    An item that pauses for a limit stops the loop: no other item starts. A question
    does not.

    With one worker each item sees the updates of all items before it. With several,
    each sees only the updates of its blockers, so that the result does not depend on their speed.
    """

    sign = "@"

    def __init__(self, token: Token, op: ForkOp, body: TasksBody) -> None:
        super().__init__(token, op, limit=op.limit)
        self.body = body
        self.program = op.branches[""]
        self.set_limit(body.max_concurrency)
        try:
            self.dispatcher: Dispatcher = body.dispatcher(token.state, token.run.deps, self.scope.item)
        except Exception as error:  # a file or the author's function; anything they raise fails the node
            raise as_node_error(self.node_id, error) from error
        self._progress = asyncio.Condition()
        self._busy = 0
        # Items that run without a worker: each worker took another item meanwhile.
        self._without_worker: set[str] = set()
        self._waiting: deque[str] = deque()  # those of them that want one again
        self._stop = False
        self._broken: NodeError | None = None
        self._finished: list[str] = []
        self.note_opened()
        self._recover()

    def _recover(self) -> None:
        """Keep items that were finished before the run stopped in the result."""
        history = self.run.history
        done = set(self.dispatcher.finished())
        if history is None or self.opened is None:
            return
        begun = history.branches_of(f"{self.scope.path}|{self.key}{self.sign}")
        blocked = history.ended is not None and history.ended.status == RunStatus.BLOCKED
        self.dispatcher.resume(() if blocked else begun)  # resuming a blocked run starts a new count
        if blocked:
            self.dispatcher.retry_failed()
        for name in begun:
            if name in done:
                self.make(name)
                self._finished.append(name)

    @property
    def at_work(self) -> int:
        return self._busy - len(self._waiting)

    def begin(self) -> None:
        super().begin()
        for _ in range(self.limit or max(1, len(self.dispatcher.order()))):
            self.spawn(self.walk_all(), self.node_id)

    def names(self) -> Iterable[str]:
        return ()  # the next item is known only when a worker is free

    async def walk_all(self) -> None:
        """Take ready items until no more can come."""
        with self:
            has_item = True
            while has_item and (taken := await self._take()) is not None:
                name, item = taken
                try:
                    token = self._task_token(name, item)
                    await self.walk(name, token)
                    self._see_pause(name, token)
                finally:
                    # Without a worker, another one has taken the place of this.
                    has_item = name not in self._without_worker
                    self._without_worker.discard(name)
                    async with self._progress:
                        self._busy -= 1
                        self._progress.notify_all()

    def free_worker(self, owner: StepOwner) -> None:
        """Let another item begin, although that of a token is not over.

        With one worker none does: each item sees the updates of all before it. As many
        items as there are workers may run without one.
        """
        name = self._name_of(owner)
        if name in self._without_worker or not 1 < self.limit > len(self._without_worker):
            return
        self._without_worker.add(name)
        self.spawn(self.walk_all(), self.node_id)

    async def take_worker(self, owner: StepOwner) -> None:
        """Wait until a worker is free for the item of a token, if it has none.

        It comes before items that have not begun.
        """
        name = self._name_of(owner)
        if name not in self._without_worker:
            return
        async with self._progress:
            self._waiting.append(name)
            self._progress.notify_all()
            try:
                await self._progress.wait_for(lambda: self._stop or name not in self._without_worker)
            finally:
                if name in self._waiting:
                    self._waiting.remove(name)

    def _name_of(self, owner: StepOwner) -> str:
        return next(name for name, child in self.children.items() if child is owner)

    def _see_pause(self, name: str, token: Token) -> None:
        first = [item for pause in token.suspended if isinstance(pause, Postpone) for item in pause.first]
        if first and token.last == "":
            del self.children[name]
            self._ask(lambda: self.dispatcher.postpone(name, first))
            self._report_tasks()
            return
        if not all(pause.concerns_only_its_step for pause in token.suspended):
            self._stop = True
        if token.suspended and not any(pause.begun for pause in token.suspended):
            self._ask(lambda: self.dispatcher.put_back(name))
            self._report_tasks()

    async def _take(self) -> tuple[str, Any] | None:
        async with self._progress:
            while not self._stop:
                if self._waiting:
                    self._without_worker.discard(self._waiting.popleft())
                    self._progress.notify_all()
                    return None
                taken = self._ask(lambda: self.dispatcher.take(self.state_now))
                if taken is not None:
                    self._busy += 1
                    self._report_tasks()
                    return taken
                if not self._busy:
                    return None
                await self._progress.wait()
            return None

    def _task_token(self, name: str, item: Any) -> Token:
        seen = self._finished if self.limit == 1 else self._in_order(set(self.dispatcher.blockers_of(name)))
        suffix = f"{self.scope.suffix}[{name}]"
        return self.child(name, self.program, self._values_after(seen), item=item, suffix=suffix)

    def make(self, name: str) -> Token:
        """Return the token of a finished task. Nothing reads its item."""
        return self._task_token(name, None)

    def _in_order(self, names: set[str]) -> list[str]:
        done = names.intersection(self._finished)
        return [name for name in self.dispatcher.order() if name in done]

    def _values_after(self, names: Sequence[str]) -> Values:
        values = dict(self.token.values)
        for name in names:
            for entry in self.children[name].trail or ():
                self.token.spec.apply(values, entry.update)
        return values

    def _merged_names(self) -> list[str]:
        return self._finished if self.limit == 1 else self._in_order(set(self._finished))

    def state_now(self) -> Any:
        """Return the state with all finished items."""
        return self.token.spec.build(self._values_after(self._merged_names()), time.time())

    def ended(self, name: str) -> None:
        error = self.errors.get(name)
        self._ask(lambda: self.dispatcher.finish(name, error))
        self._report_tasks()
        if error is None:
            self._finished.append(name)
        until = self.body.until
        if until is not None and self._ask(lambda: call(until, self.state_now(), item=self.scope.item)):
            self._stop = True

    def entries(self, *, kept: bool = False) -> list[Entry]:
        if kept:
            return super().entries(kept=True)
        known = self._finished
        if self.limit != 1:
            known = [name for name in self.dispatcher.order() if name in self.children]
        names = [*known, *(name for name in self.children if name not in known)]
        return [entry for name in names for entry in self.children[name].entries()]

    def _ask(self, question: Callable[[], AnswerT]) -> AnswerT | None:
        """Call the dispatcher, which may fail: it uses files and the author's
        functions.
        """
        try:
            return question()
        except Exception as error:
            self._broken = self._broken or as_node_error(self.node_id, error)
            self._stop = True
            return None

    def _report_tasks(self) -> None:
        if self.run.live is not None:  # a list may have thousands of items
            self.run.report_event(self.node_id, Event("tasks_changed", self.dispatcher.items()))

    def failure(self) -> NodeError | None:
        return self._broken  # the dispatcher handles failed tasks

    async def join(self) -> Step[Any] | None:
        if not self._stop and (reason := self.dispatcher.unfinished()) is not None:
            self.token.suspended = [Suspend(reason, status=RunStatus.BLOCKED, node_id=self.node_id, code=self._code())]
            return None
        return await super().join()

    def _code(self) -> str:
        """Return the code of the failures that stopped the loop.

        A decisive one wins.
        """
        causes = [error.__cause__ for error in self.errors.values()]
        causes.sort(key=lambda cause: not getattr(cause, "decisive", False))
        codes = [getattr(cause, "code", "") for cause in causes]
        return next((code for code in codes if code), "")

    def merge(self) -> None:
        names = self._merged_names()
        self.note_joined(names)
        self.merge_entries([entry for name in names for entry in self.children[name].trail or ()])
