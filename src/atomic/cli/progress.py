"""Show a run: as JSON lines, as plain lines in a pipe, or as lines above a live block
in a terminal.

Progress goes to standard error. Standard output has the result of the run and nothing
else, or the JSON lines.

Control characters in the text of agents and workflows are made visible, so they cannot
move the cursor.
"""

from __future__ import annotations

import asyncio
import os
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from atomic.base.step_names import split_first, without_items
from atomic.base.terminal import harmless, one_line
from atomic.base.text import cut, duration, local_time
from atomic.cli.opening import Opening
from atomic.cli.output import Output
from atomic.cli.streams import forget_typed_text, json_line, message, screen_width
from atomic.cli.terminal_questions import WrongAnswerError, answer_prompt, question_text, read_answer, read_typed_line
from atomic.config import atomic_home
from atomic.config.ralph_flags import NAME
from atomic.graph import JournalError
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
from atomic.runs.results import REPORT, as_text, read_result
from atomic.runs.spending import read_past
from atomic.sessions.errors import SessionError
from atomic.sessions.facts import read_facts
from atomic.sessions.store import SessionStore
from atomic.tasks import Task, TaskStatus

FRAME_SECONDS = 0.2
MOST_ROWS = 12  # of the live block
_SUCCESS = ("completed", "chat")
_DONE = (TaskStatus.COMPLETED, TaskStatus.SKIPPED)


class View(Protocol):
    """Shows a run."""

    def show(self, event: WorkflowEvent) -> None: ...

    def refuse(self, why: str, exit_code: int) -> None:
        """Show why the run did not start."""
        ...

    def pause(self) -> None:
        """Leave the terminal to a question until the next event."""
        ...

    def close(self) -> None: ...


def view_for(out: Output, *, as_json: bool, quiet: bool = False) -> View:
    """Return the view for JSON, for the result alone, for a terminal or a pipe."""
    if as_json:
        return JsonView(out)
    if quiet:
        return QuietView(out)
    has_cursor = os.isatty(out.progress) and os.environ.get("TERM") != "dumb"
    return LiveView(out) if has_cursor else PlainView(out)


class JsonView:
    """Prints one JSON object per line and nothing else."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def show(self, event: WorkflowEvent) -> None:
        self._out.put(json_line(event))

    def refuse(self, why: str, exit_code: int) -> None:
        self._out.put(json_line({"type": "error", "exit_code": exit_code, "message": why}))
        self._out.tell(why)

    def pause(self) -> None:
        """Do nothing: there is no terminal."""

    def close(self) -> None:
        """Do nothing: each line is written at once."""


class Progress:
    """The current state of a run, and the lines that its events print."""

    def __init__(self) -> None:
        self.began = time.time()
        self.running: dict[str, NodeStarted] = {}  # by step
        self.activity: dict[str, str] = {}  # by node: the last action of its agent
        self.tasks: Sequence[Task] = ()
        self.cost = 0.0
        self.tokens = 0
        self.ended: RunEnded | None = None
        self.session_dir = ""
        self._workflow = ""
        self._failures: list[str] = []  # the lines about steps that have failed

    @property
    def done(self) -> int:
        return sum(task.status in _DONE for task in self.tasks)

    def lines(self, event: WorkflowEvent) -> Iterator[str]:
        """Apply an event, and yield the lines that tell the progress."""
        match event:
            case RunStarted():
                self.session_dir = event.session_dir
                self._workflow = event.workflow
                if event.resumed:
                    self._add_earlier_cost(event.run)
                yield f"{'Resuming' if event.resumed else 'Session:'} {event.run}"
            case NodeStarted():
                self.running[event.step_id] = event
                if event.description:
                    yield self._description_of(event)
            case NodeEnded():
                yield from self._node_ended(event)
            case AgentActivity():
                yield from self._agent_activity(event)
            case TasksChanged():
                yield from self._tasks_changed(event.tasks)
            case QuestionAsked():
                yield question_text(event.question).strip("\n")
            case LimitReached():
                yield limit_line(event)
            case RunEnded():
                self.ended = event
                if event.status in _SUCCESS:
                    seconds = self._take_total(event)
                    yield f"{event.status} after {duration(int(seconds))}{self._spent()}"
                    if event.said and event.said != event.result:
                        yield harmless(event.said.strip())
            case Warning(notice=True):
                yield harmless(event.text)
            case Warning():
                return  # it goes to standard error

    def _add_earlier_cost(self, run: str) -> None:
        """Start with the cost of earlier processes of the run."""
        try:
            cost = SessionStore(atomic_home()).find(run).record.cost
        except SessionError:  # the run itself reports a damaged folder
            return
        self.cost = cost.usd or 0.0
        self.tokens = cost.input_tokens + cost.output_tokens

    def _take_total(self, ended: RunEnded) -> float:
        """Take the cost of the whole run from its journal, and return its working time."""
        try:
            session = SessionStore(atomic_home()).find(ended.run)
            spent = read_past(read_facts(session.journal_path, session.id)).spent
        except (SessionError, JournalError):  # the run itself reports a damaged folder
            return ended.time - self.began
        self.cost = spent.usd
        self.tokens = spent.tokens
        return spent.seconds

    def _node_ended(self, event: NodeEnded) -> Iterator[str]:
        self.running.pop(event.step_id, None)
        self.activity.pop(event.node, None)
        if event.status == "failed":
            name = self._task_of(event.node) or one_line(event.description or event.node)
            self._failures.append(f"{name} failed: {one_line(event.why)}")
            yield self._failures[-1]

    def error_lines(self, event: WorkflowEvent, *, is_repeated: bool) -> list[str]:
        """Return the lines of warnings and of an end without success.

        `is_repeated`: the reader has seen the lines about failed steps too.
        """
        if isinstance(event, Warning) and not event.notice:
            return [message(f"warning: {event.text}")]
        if not isinstance(event, RunEnded) or event.status in _SUCCESS:
            return []
        said = event.said or event.reason
        for line in self._failures if is_repeated else ():
            said = said.replace(line, f"{line.partition(' failed: ')[0]} failed")
        lines = [message(f"{event.status}: {said}")]
        if self._workflow == NAME:
            lines += [f"  {harmless(line)}\n" for line in self._unfinished_work(event.run)]
        report = os.path.join(self.session_dir, REPORT)
        if self.session_dir and os.path.exists(report):
            lines.append(f"Report: {harmless(report)}\n")
        if event.resume:
            lines.append(f"Resume with: {event.resume}\n")
        return lines

    def _unfinished_work(self, run: str) -> list[str]:
        """Return the commands for what a run of Ralph has done although it is not completed."""
        from atomic.ralph.report import unfinished_work

        try:
            session = SessionStore(atomic_home()).find(run)
            return unfinished_work(session.dir, read_facts(session.journal_path, session.id))
        except (SessionError, JournalError):  # the run itself reports a damaged folder
            return []

    def _task_of(self, node: str) -> str:
        """Return the task that a step belongs to, or an empty text."""
        item = split_first(node)[1].removeprefix("[").removesuffix("]")
        return f"task {one_line(item)}" if any(task.id == item for task in self.tasks) else ""

    def _description_of(self, event: NodeStarted) -> str:
        """Return what a step does, with its task: several may run at once."""
        task = self._task_of(event.node)
        what = one_line(event.description or event.node)
        return f"{task}: {what}" if task else what

    def _agent_activity(self, event: AgentActivity) -> Iterator[str]:
        inner = event.event
        action = _action(inner)
        if action:
            self.activity[event.node] = action
        if not isinstance(inner, TurnEnded) or inner.agent is not None:
            return
        self.cost += inner.usage.cost or 0.0
        self.tokens += inner.usage.input + inner.usage.output
        if inner.text.strip():
            yield f"[{one_line(_speaker(event))}] {harmless(inner.text.strip())}"

    def _tasks_changed(self, tasks: Sequence[Task]) -> Iterator[str]:
        before = {task.id: task.status for task in self.tasks}
        self.tasks = tasks
        for task in tasks:
            if task.status is not before.get(task.id, TaskStatus.PENDING):
                yield f"task {one_line(task.id)} {task.status}: {one_line(task.title)} ({self.done}/{len(tasks)} done)"

    def _spent(self) -> str:
        if self.cost:
            return f", ${self.cost:.2f}"
        return f", {self.tokens:,} tokens" if self.tokens else ""

    def block(self, columns: int) -> list[str]:
        """Return the rows of the live block: the running steps, then time, tasks and
        cost.
        """
        now = time.time()
        rows = [self._row(started, now) for started in self.running.values()]
        if len(rows) > MOST_ROWS:
            rows = [*rows[: MOST_ROWS - 1], f"  … and {len(rows) - MOST_ROWS + 1} more"]
        tasks = f", tasks {self.done}/{len(self.tasks)}" if self.tasks else ""
        head = f"{duration(int(now - self.began))}{tasks}{self._spent()}"
        return [cut(row, max(10, columns - 1)) for row in (*rows, head)]

    def _row(self, started: NodeStarted, now: float) -> str:
        row = f"  {self._description_of(started)} {duration(int(now - started.time))}"
        action = self.activity.get(started.node)
        return f"{row} · {action}" if action else row


def result_of(event: RunEnded, *, to_terminal: bool) -> str:
    """Return the result of a run as standard output gets it; empty without one.

    A text is printed as it is; a terminal gets it without control characters.
    """
    result = event.result
    if event.result_omitted:
        try:
            result = read_result(SessionStore(atomic_home()).find(event.run))
        except (SessionError, JournalError):  # the run itself reports a damaged folder
            return ""
    if result is None:
        return ""
    return printed(result, to_terminal=to_terminal)


def printed(result: Any, *, to_terminal: bool) -> str:
    """Return a result with a line end, as standard output gets it."""
    text = as_text(result)
    if to_terminal:
        text = harmless(text)
    return text if text.endswith("\n") else f"{text}\n"


class PlainView:
    """Prints lines to standard error, and the result to standard output."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._progress = Progress()
        self._opening: Opening[str] = Opening(lambda text: f"{text}\n")

    def show(self, event: WorkflowEvent) -> None:
        lines = [f"{line}\n" for line in self._progress.lines(event)]
        lines += self._progress.error_lines(event, is_repeated=True)
        self._print(self._opening.order(event, lines))
        if isinstance(event, RunEnded) and (result := result_of(event, to_terminal=self._out.is_terminal)):
            self._out.put(result)

    def _print(self, lines: Sequence[str]) -> None:
        for text in lines:
            self._out.show(text)

    def refuse(self, why: str, exit_code: int) -> None:
        self._print(self._opening.rest())
        self._out.tell(why)

    def pause(self) -> None:
        """Do nothing: there is no live block."""

    def close(self) -> None:
        self._print(self._opening.rest())


class QuietView:
    """Prints the result to standard output, and what went wrong to standard error."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._progress = Progress()

    def show(self, event: WorkflowEvent) -> None:
        lines = [f"{line}\n" for line in self._progress.lines(event)]
        if isinstance(event, QuestionAsked):  # the user at a terminal has to see it
            self._out.show("".join(lines))
        for line in self._progress.error_lines(event, is_repeated=False):
            self._out.show(line)
        if isinstance(event, RunEnded) and (result := result_of(event, to_terminal=self._out.is_terminal)):
            self._out.put(result)

    def refuse(self, why: str, exit_code: int) -> None:
        self._out.tell(why)

    def pause(self) -> None:
        """Do nothing: there is no live block."""

    def close(self) -> None:
        """Do nothing: each line is written at once."""


class LiveView:
    """Prints lines to a terminal, and below them a block that is repainted."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._progress = Progress()
        self._opening = Opening(lambda text: _wrapped(f"{text}\n", self._columns))
        self._rows = 0
        self._is_paused = False
        self._painter = asyncio.create_task(self._repaint())

    def show(self, event: WorkflowEvent) -> None:
        self._is_paused = False
        lines = [f"{line}\n" for line in self._progress.lines(event)]
        lines += self._progress.error_lines(event, is_repeated=True)
        if isinstance(event, (Warning, RunEnded, TasksChanged, AgentActivity)):
            lines = [_wrapped(line, self._columns) for line in lines]
        ordered = self._opening.order(event, lines)
        if ordered:
            self._paint("".join(ordered))
        if isinstance(event, RunEnded) and (result := result_of(event, to_terminal=self._out.is_terminal)):
            self._erase()
            self._out.put(result)

    def refuse(self, why: str, exit_code: int) -> None:
        self._print_rest()
        self._out.tell(why)

    def pause(self) -> None:
        self._erase()
        self._is_paused = True

    def close(self) -> None:
        self._painter.cancel()
        self._print_rest()
        self._erase()

    def _print_rest(self) -> None:
        if rest := self._opening.rest():
            self._paint("".join(rest))

    async def _repaint(self) -> None:
        while True:
            await asyncio.sleep(FRAME_SECONDS)
            if self._progress.running and not self._is_paused and self._out.backlog < 10:
                self._paint("")

    def _paint(self, lines: str) -> None:
        """Print lines in place of the block, and the block below them."""
        block: list[str] = []
        if self._progress.running and self._progress.ended is None:
            block = self._progress.block(self._columns)
        rows = "".join(f"{row}\n" for row in block)
        self._out.show(f"{self._clear_block()}{lines}{rows}")
        self._rows = len(block)

    @property
    def _columns(self) -> int:
        return screen_width(self._out.progress) or 80

    def _erase(self) -> None:
        if self._rows:
            self._out.show(self._clear_block())
            self._rows = 0

    def _clear_block(self) -> str:
        return f"\x1b[{self._rows}A\r\x1b[J" if self._rows else ""


class TerminalUser:
    """The user at the terminal."""

    def __init__(self, out: Output, view: View) -> None:
        self._out = out
        self._view = view
        self._one_at_a_time = asyncio.Lock()
        self._open = 0

    async def ask(self, question: Question) -> str | list[str] | None:
        """Return the answer; None if the user ends the input."""
        self._open += 1
        had_to_wait = self._one_at_a_time.locked()
        try:
            async with self._one_at_a_time:
                return await self._ask(question, again=had_to_wait)
        finally:
            self._open -= 1

    async def _ask(self, question: Question, *, again: bool) -> str | list[str] | None:
        forget_typed_text()  # not later: an answer may follow the question at once
        await asyncio.sleep(FRAME_SECONDS)  # the view shows the question when its event arrives
        self._view.pause()
        if again or self._open > 1:  # the screen has other questions too: show which one is meant
            self._out.show(question_text(question))
        while True:
            self._view.pause()
            self._out.show(answer_prompt(question))
            line = await read_typed_line()
            if not line:  # Ctrl+D
                self._out.show("\n")
                return None
            try:
                labels = read_answer(question, line)
            except WrongAnswerError as error:
                self._out.show(f"{error}\n")
                continue
            return labels if question.multi_select else labels[0]


def _wrapped(text: str, columns: int) -> str:
    """Break long lines between words."""
    lines: list[str] = []
    for line in text.split("\n"):
        words = textwrap.wrap(line, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        lines += words if len(line) > columns else [line]
    return "\n".join(lines)


def _action(event: AgentEvent) -> str:
    """Return an agent's last action in a few words; empty for other events."""
    match event:
        case ToolStarted():
            detail = next((value for value in event.input.values() if isinstance(value, str)), "")
            return one_line(f"{event.name} {detail}"[:200])
        case TextDelta():
            return "writing"
        case ThinkingDelta():
            return "thinking"
        case AgentLimit():
            return one_line(f"limit: {event.message}"[:200])
        case _:
            return ""


def _speaker(event: AgentActivity) -> str:
    """Return the node, or the role if the node is one of several items, whose numbers
    mean nothing to users.
    """
    is_item = without_items(event.node) != event.node
    who = event.role if is_item and event.role else event.node
    return f"{who}, task {event.task}" if event.task else who


def limit_line(event: LimitReached) -> str:
    """Return the line for a reached limit: of the agent, or a cap that the user has
    set.
    """
    if event.kind == "provider":
        if event.reset_at is None:
            return "the agent's usage limit is reached"
        return f"the agent's usage limit is reached until {local_time(event.reset_at)}"
    line = f"the cap --{event.kind.replace('_', '-')} is reached"
    if event.limit is None or event.spent is None:
        return line
    match event.kind:
        case "max_cost":
            return f"{line}: ${event.spent:.2f} of ${event.limit:.2f}"
        case "max_time":
            return f"{line}: {duration(int(event.spent))} of {duration(int(event.limit))}"
        case _:
            return f"{line}: {event.spent:,.0f} of {event.limit:,.0f} tokens"
