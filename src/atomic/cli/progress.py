"""How a run is shown: one JSON object a line, plain lines in a pipe, or lines with a live block below in a terminal.

All text of agents and workflows is shown, never obeyed: what would move the cursor stands there as a picture of itself.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from atomic.base.step_names import split_first, without_items
from atomic.base.terminal import harmless, one_line
from atomic.base.text import cut, duration
from atomic.cli.output import Output
from atomic.cli.streams import STDOUT, json_line, message, screen_width
from atomic.cli.terminal_questions import WrongAnswerError, prompt_of, read_answer, read_line, shown
from atomic.config import atomic_home
from atomic.providers.events import AgentEvent, TextDelta, ThinkingDelta, ToolStarted, TurnEnded
from atomic.providers.events import LimitReached as AgentLimit
from atomic.questions import Question
from atomic.runs.events import (
    AgentActivity,
    LimitReached,
    NodeEnded,
    NodeStarted,
    QuestionAsked,
    RunEnded,
    RunStarted,
    TasksChanged,
    Warning,
    WorkflowEvent,
)
from atomic.sessions.errors import SessionError
from atomic.sessions.store import SessionStore
from atomic.tasks import Task, TaskStatus

FRAME_SECONDS = 0.2
REPORT = "report.md"  # what a workflow may leave at every end
MOST_ROWS = 12  # of the live block
_DONE = (TaskStatus.COMPLETED, TaskStatus.SKIPPED)


class View(Protocol):
    """Shows a run."""

    def show(self, event: WorkflowEvent) -> None: ...

    def refuse(self, why: str, exit_code: int) -> None:
        """There is no run."""
        ...

    def rest(self) -> None:
        """Somebody else writes to the screen until the next event."""
        ...

    def close(self) -> None: ...


def view_for(out: Output, *, as_json: bool) -> View:
    """The view that fits where standard output goes."""
    if as_json:
        return JsonView(out)
    return LiveView(out) if os.isatty(STDOUT) and os.environ.get("TERM") != "dumb" else PlainView(out)


class JsonView:
    """One object a line, nothing else."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def show(self, event: WorkflowEvent) -> None:
        self._put(event)

    def refuse(self, why: str, exit_code: int) -> None:
        self._put({"type": "error", "exit_code": exit_code, "message": why})
        self._out.tell(why)

    def rest(self) -> None:
        """Nobody is asked here."""

    def close(self) -> None:
        """Each line was written when it came."""

    def _put(self, data: object) -> None:
        self._out.put(json_line(data))


class Board:
    """What is known of a run at a moment; it makes the lines that stay."""

    def __init__(self) -> None:
        self.began = time.time()
        self.running: dict[str, NodeStarted] = {}  # by step
        self.doing: dict[str, str] = {}  # by node: the last thing its agent did
        self.tasks: Sequence[Task] = ()
        self.cost = 0.0
        self.tokens = 0
        self.ended: RunEnded | None = None
        self.session_dir = ""

    @property
    def done(self) -> int:
        return sum(task.status in _DONE for task in self.tasks)

    def lines(self, event: WorkflowEvent) -> Iterator[str]:
        """Take an event in; the lines that it leaves on standard output."""
        match event:
            case RunStarted():
                self.session_dir = event.session_dir
                if event.resumed:
                    self._take_up_cost(event.run)
                yield f"{'Resuming' if event.resumed else 'Session:'} {event.run}"
            case NodeStarted():
                self.running[event.step_id] = event
                if event.description:
                    yield one_line(event.description)
            case NodeEnded():
                yield from self._node_ended(event)
            case AgentActivity():
                yield from self._activity(event)
            case TasksChanged():
                yield from self._tasks_changed(event.tasks)
            case QuestionAsked():
                yield shown(event.question).strip("\n")
            case LimitReached():
                yield _limit(event)
            case RunEnded():
                self.ended = event
                if event.status in ("completed", "chat"):
                    yield f"{event.status} after {duration(int(event.time - self.began))}{self._money()}"
            case Warning():
                return  # it goes to standard error

    def _take_up_cost(self, run: str) -> None:
        """Begin with what earlier processes of the run have spent."""
        try:
            cost = SessionStore(atomic_home()).find(run).record.cost
        except SessionError:  # the run says what is wrong with its folder
            return
        self.cost = cost.usd or 0.0
        self.tokens = cost.input_tokens + cost.output_tokens

    def _node_ended(self, event: NodeEnded) -> Iterator[str]:
        self.running.pop(event.step_id, None)
        self.doing.pop(event.node, None)
        if event.status == "failed":
            yield f"{one_line(self._step(event))} failed: {one_line(event.why)}"

    def _step(self, event: NodeEnded) -> str:
        """Name a step by its task, its description or its node."""
        item = split_first(event.node)[1].removeprefix("[").removesuffix("]")
        if any(task.id == item for task in self.tasks):
            return f"task {item}"
        return event.description or event.node

    def _activity(self, event: AgentActivity) -> Iterator[str]:
        inner = event.event
        if did := _did(inner):
            self.doing[event.node] = did
        if not isinstance(inner, TurnEnded) or inner.agent is not None:
            return
        self.cost += inner.usage.cost or 0.0
        self.tokens += inner.usage.input + inner.usage.output
        if inner.text.strip():
            yield f"[{one_line(_name(event))}] {harmless(inner.text.strip())}"

    def _tasks_changed(self, tasks: Sequence[Task]) -> Iterator[str]:
        before, self.tasks = {task.id: task.status for task in self.tasks}, tasks
        for task in tasks:
            if task.status is not before.get(task.id, TaskStatus.PENDING):
                yield f"task {one_line(task.id)} {task.status}: {one_line(task.title)} ({self.done}/{len(tasks)} done)"

    def _money(self) -> str:
        return f", ${self.cost:.2f}" if self.cost else f", {self.tokens:,} tokens" if self.tokens else ""

    def block(self, columns: int) -> list[str]:
        """What runs now, as lines that fit."""
        now = time.time()
        rows = [self._row(started, now) for started in self.running.values()]
        if len(rows) > MOST_ROWS:
            rows = [*rows[: MOST_ROWS - 1], f"  … and {len(rows) - MOST_ROWS + 1} more"]
        tasks = f", tasks {self.done}/{len(self.tasks)}" if self.tasks else ""
        head = f"{duration(int(now - self.began))}{tasks}{self._money()}"
        return [cut(row, max(10, columns - 1)) for row in (*rows, head)]

    def _row(self, started: NodeStarted, now: float) -> str:
        doing = self.doing.get(started.node, "")
        said = one_line(started.description) or one_line(started.node)
        return f"  {said} {duration(int(now - started.time))}{f' · {doing}' if doing else ''}"


class PlainView:
    """Lines for people on standard output; what they must know at the end, and warnings, on standard error."""

    def __init__(self, out: Output) -> None:
        self._out, self._board = out, Board()

    def show(self, event: WorkflowEvent) -> None:
        for line in self._board.lines(event):
            self._out.put(f"{line}\n")
        for line in told(event, self._board.session_dir):
            self._out.show(line)

    def refuse(self, why: str, exit_code: int) -> None:
        self._out.tell(why)

    def rest(self) -> None:
        """There is nothing that would be in the way."""

    def close(self) -> None:
        """Each line was written when it came."""


class LiveView:
    """Lines that stay, and below them a block that is painted again and again."""

    def __init__(self, out: Output) -> None:
        self._out, self._board = out, Board()
        self._rows = 0
        self._is_resting = False
        self._painting = asyncio.create_task(self._repaint())

    def show(self, event: WorkflowEvent) -> None:
        self._is_resting = False
        stay = [*(f"{line}\n" for line in self._board.lines(event)), *told(event, self._board.session_dir)]
        if stay:
            self._paint("".join(stay))

    def refuse(self, why: str, exit_code: int) -> None:
        self._out.tell(why)

    def rest(self) -> None:
        self._erase()
        self._is_resting = True

    def close(self) -> None:
        self._painting.cancel()
        self._erase()

    async def _repaint(self) -> None:
        while True:
            await asyncio.sleep(FRAME_SECONDS)
            if self._board.running and not self._is_resting and self._out.backlog < 10:
                self._paint("")

    def _paint(self, stay: str) -> None:
        block = self._board.block(screen_width() or 80) if self._board.running and self._board.ended is None else []
        rows = "".join(f"{row}\n" for row in block)
        self._out.put(f"{self._up()}{stay}{rows}")
        self._rows = len(block)

    def _erase(self) -> None:
        if self._rows:
            self._out.put(self._up())
            self._rows = 0

    def _up(self) -> str:
        return f"\x1b[{self._rows}A\r\x1b[J" if self._rows else ""


class TerminalUser:
    """The person at the terminal."""

    def __init__(self, out: Output, view: View) -> None:
        self._out, self._view = out, view
        self._one_at_a_time = asyncio.Lock()
        self._open = 0

    async def ask(self, question: Question) -> str | list[str] | None:
        """The answer; None if the person ends the input."""
        self._open += 1
        had_to_wait = self._one_at_a_time.locked()
        try:
            async with self._one_at_a_time:
                return await self._ask(question, again=had_to_wait)
        finally:
            self._open -= 1

    async def _ask(self, question: Question, *, again: bool) -> str | list[str] | None:
        await asyncio.sleep(FRAME_SECONDS)  # the question itself is an event, and on its way to the screen
        self._view.rest()
        if again or self._open > 1:  # others stand on the screen too: nobody could tell which one is meant
            self._out.show(shown(question))
        while True:
            self._view.rest()
            self._out.show(prompt_of(question))
            line = await read_line()
            if not line:  # Ctrl+D
                self._out.show("\n")
                return None
            try:
                labels = read_answer(question, line)
            except WrongAnswerError as error:
                self._out.show(f"{error}\n")
                continue
            return labels if question.multi_select else labels[0]


def told(event: WorkflowEvent, session_dir: str) -> list[str]:
    """What a person is told on standard error."""
    if isinstance(event, Warning):
        return [message(f"warning: {event.text}")]
    if not isinstance(event, RunEnded) or event.status in ("completed", "chat"):
        return _said_at_the_end(event.said) if isinstance(event, RunEnded) and event.said else []
    lines = [message(f"{event.status}: {event.said or event.reason}")]
    if session_dir and os.path.exists(report := os.path.join(session_dir, REPORT)):
        lines.append(f"Report: {harmless(report)}\n")
    return [*lines, f"Resume with: {event.resume}\n"] if event.resume else lines


def _said_at_the_end(text: str) -> list[str]:
    """A sentence, and what a workflow shows below it."""
    sentence, _, shown = text.partition("\n")
    return [message(sentence), f"{harmless(shown.strip())}\n"] if shown.strip() else [message(sentence)]


def _did(event: AgentEvent) -> str:
    """The last thing that an agent did, in a few words."""
    match event:
        case ToolStarted():
            detail = next((value for value in event.input.values() if isinstance(value, str)), "")
            return one_line(f"{event.name} {detail}"[:200])
        case TextDelta():
            return "answers"
        case ThinkingDelta():
            return "thinks"
        case AgentLimit():
            return one_line(f"limit: {event.message}"[:200])
        case _:
            return ""


def _name(event: AgentActivity) -> str:
    """Name who speaks: the node, or the role where it is one of several items, whose numbers mean nothing to people."""
    is_item = without_items(event.node) != event.node
    who = event.role if is_item and event.role else event.node
    return f"{who}, task {event.task}" if event.task else who


def _limit(event: LimitReached) -> str:
    if event.kind != "provider":
        return f"limit reached: {event.kind}"
    until = "" if event.reset_at is None else time.strftime(" until %Y-%m-%d %H:%M:%S", time.localtime(event.reset_at))
    return f"the agent's usage limit is reached{until}"
