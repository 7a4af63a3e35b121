"""The tasks of a task loop, which start when they are ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from atomic.graph.engine.attempts import as_node_error
from atomic.graph.engine.control import Event, Postpone, RunStatus, Suspend
from atomic.graph.engine.errors import NodeError
from atomic.graph.engine.forks import Fork
from atomic.graph.engine.node import Dispatcher, TasksBody
from atomic.graph.engine.program import ForkOp
from atomic.graph.engine.run import Entry, Step
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
        try:
            if callable(body.max_concurrency):
                self.limit = body.max_concurrency(token.state)
            self.dispatcher: Dispatcher = body.dispatcher(token.state, token.run.deps)
        except Exception as error:  # a file or the author's function; anything they raise fails the node
            raise as_node_error(self.node_id, error) from error
        self._progress = asyncio.Condition()
        self._busy = 0
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

    def begin(self) -> None:
        super().begin()
        for _ in range(self.limit or max(1, len(self.dispatcher.order()))):
            self.spawn(self.walk_all(), self.node_id)

    def names(self) -> Iterable[str]:
        return ()  # the next item is known only when a worker is free

    async def walk_all(self) -> None:
        """Take ready items until no more can come."""
        with self:
            while (taken := await self._take()) is not None:
                name, item = taken
                try:
                    token = self._task_token(name, item)
                    await self.walk(name, token)
                    self._see_pause(name, token)
                finally:
                    async with self._progress:
                        self._busy -= 1
                        self._progress.notify_all()

    def _see_pause(self, name: str, token: Token) -> None:
        first = [item for pause in token.suspended if isinstance(pause, Postpone) for item in pause.first]
        if first and token.last == "":
            del self.children[name]
            self._ask(lambda: self.dispatcher.postpone(name, first))
            self._report_tasks()
            return
        if any(pause.question is None for pause in token.suspended):
            self._stop = True
        if token.suspended and not any(pause.begun for pause in token.suspended):
            self._ask(lambda: self.dispatcher.put_back(name))
            self._report_tasks()

    async def _take(self) -> tuple[str, Any] | None:
        async with self._progress:
            while not self._stop:
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
        if until is not None and self._ask(lambda: until(self.state_now())):
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
