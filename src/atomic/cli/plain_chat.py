"""The conversation as lines, each printed once: for screen readers, dumb terminals and
pipes.

A question or a choice is a numbered list, and the next typed line answers it. A line
that is typed while the agent works is sent when the agent is done. At the end of
standard input the lines that are left also answer questions.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from time import monotonic
from uuid import uuid4

from atomic.base.errors import ExitCode
from atomic.base.terminal import harmless
from atomic.base.text import cut, duration
from atomic.chat import protocol
from atomic.chat.client import ChatClient, ProcessClient
from atomic.chat.protocol import ChatEvent, PickOpened, QuestionOpened, RunEnded, RunKind, RunStarted
from atomic.providers import events
from atomic.questions import Question
from atomic.runs import events as workflow
from atomic.tui.main import ChatRequest

LEAVE_SECONDS = 5.0  # for the engine to end by itself
_DETAIL_COLUMNS = 100
_WIDTH = 80  # of text that commands lay out
_DETAILS = ("command", "file_path", "path", "pattern", "query", "url", "description", "prompt")


def talk(request: ChatRequest, program: Sequence[str] | None = None) -> int:
    """Run a conversation until the user leaves it, then end the process."""
    code = asyncio.run(_talk(request, program))
    sys.stdout.flush()
    os._exit(code)  # without waiting for the thread that reads lines


async def _talk(request: ChatRequest, program: Sequence[str] | None) -> int:
    client = ProcessClient(request.engine_arguments(), session=request.resume or "", program=program)
    talk = PlainTalk(client, _write)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, talk.interrupt)
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, talk.end, ExitCode.SIGNALLED + number)

    def read_lines() -> None:
        for line in iter(sys.stdin.readline, ""):
            loop.call_soon_threadsafe(talk.take_line, line.rstrip("\n"))
        loop.call_soon_threadsafe(talk.take_end)

    # A thread, because not every file can be polled.
    threading.Thread(target=read_lines, daemon=True).start()
    try:
        return await talk.run(request.prompt)
    finally:
        await client.close()


def _write(text: str) -> None:
    data = memoryview(harmless(text).encode("utf-8", "replace"))
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        os._exit(ExitCode.SIGNALLED + signal.SIGPIPE)


class PlainTalk:
    """One conversation: sends typed lines to the engine, and prints its events."""

    def __init__(self, client: ChatClient, write: Callable[[str], None]) -> None:
        self._client = client
        self._printer = _Printer(write)
        self._history = _Printer(write)  # of its own, because old runs may have the ids of new ones
        self._active: dict[str, RunKind] = {}
        self._waiting: deque[QuestionOpened | PickOpened] = deque()
        self._typed: deque[str] = deque()
        self._unfinished = ""  # lines that ended with a backslash
        self._process = uuid4().hex[:8]  # several processes write to one log: their runs need different ids
        self._numbers = count(1)
        self._exit_code: int = ExitCode.DONE
        self._has_all_input = False
        self._has_picked = False  # a choice was sent, and its run has not started
        self._is_leaving = False
        self._was_interrupted = False

    async def run(self, prompt: str) -> int:
        """Handle events until the engine ends, and return the exit code."""
        self._client.send(protocol.ScreenSize(width=_WIDTH))
        if prompt:
            self._submit(prompt)
        else:
            self._printer.line("atomic: type a line and press Enter; /help lists commands, /exit leaves")
        async for event in self._client.events():
            self._handle(event)
            if isinstance(event, protocol.Left):
                break
        return self._exit_code

    def take_line(self, line: str) -> None:
        """Handle a typed line."""
        if line.endswith("\\"):
            self._unfinished += line[:-1] + "\n"
            return
        line = self._unfinished + line
        self._unfinished = ""
        if self._waiting:
            self._answer(line)
        elif self._active:
            self._typed.append(line)
        elif line.strip():
            self._submit(line)

    def take_end(self) -> None:
        """Handle the end of standard input."""
        self._has_all_input = True
        self._answer_with_typed_lines()

    def interrupt(self) -> None:
        """Handle Ctrl+C: stop the running turn.

        Leave if nothing runs, or at the second Ctrl+C.
        """
        foreground = [run for run, kind in self._active.items() if kind is not RunKind.WORKFLOW] or [*self._active]
        if not foreground or self._was_interrupted:
            self.end(ExitCode.SIGNALLED + signal.SIGINT)
            return
        self._was_interrupted = True
        self._typed.clear()
        self._printer.line("stopping (Ctrl+C once more leaves)")
        self._client.send(protocol.Interrupt(run=foreground[-1]))

    def end(self, exit_code: int) -> None:
        """Leave with this exit code, after the engine has ended or its time is up."""
        self._exit_code = exit_code
        if self._is_leaving:
            return
        self._is_leaving = True
        self._client.send(protocol.Leave(pause=True))
        loop = asyncio.get_running_loop()
        loop.call_later(LEAVE_SECONDS, lambda: loop.create_task(self._client.close()))

    def _submit(self, text: str) -> None:
        self._was_interrupted = False
        run = f"plain-{self._process}-{next(self._numbers)}"
        command = text[1:].strip()
        if text.startswith("!") and command:
            self._active[run] = RunKind.SHELL
            self._client.send(protocol.Shell(run=run, command=command))
        else:
            self._active[run] = RunKind.TURN
            self._client.send(protocol.Submit(run=run, text=text))

    def _answer(self, line: str) -> None:
        asked = self._waiting[0]
        if isinstance(asked, PickOpened):
            chosen = _numbered(line, [row.value for row in asked.rows])
            if line.strip() and chosen is None:
                self._printer.line(f"type a number from 1 to {len(asked.rows)}, or only Enter to cancel")
                return
            self._waiting.popleft()
            self._has_picked = chosen is not None
            self._client.send(protocol.Picked(request=asked.request, value=chosen))
        else:
            self._waiting.popleft()
            self._client.send(protocol.Answer(question=asked.id, answers=answers_of(asked.question, line)))
        self._ask()

    def _answer_with_typed_lines(self) -> None:
        """Answer questions with typed lines, once no other line can come.

        A command cancels a choice.
        """
        if not self._has_all_input:
            return
        while self._waiting and self._typed:
            asked = self._waiting[0]
            line = self._typed.popleft()
            is_command = isinstance(asked, PickOpened) and not _numbered(line, [row.value for row in asked.rows])
            if is_command and line.strip():
                self._typed.appendleft(line)
            self._answer("" if is_command else line)
        self._continue()

    def _handle(self, event: ChatEvent) -> None:
        self._printer.show(event)
        match event:
            case RunStarted(run=run, kind=kind):
                if run not in self._active:  # the run of a choice
                    self._has_picked = False
                self._active[run] = kind
            case RunEnded(run=run):
                self._active.pop(run, None)
                self._continue()
            case QuestionOpened() | PickOpened():
                self._waiting.append(event)
                if len(self._waiting) == 1:
                    self._ask()
                self._answer_with_typed_lines()
            case protocol.QuestionClosed(id=id):
                is_first = bool(self._waiting) and getattr(self._waiting[0], "id", "") == id
                self._waiting = deque(one for one in self._waiting if getattr(one, "id", "") != id)
                if is_first:
                    self._printer.line("the question no longer needs an answer")
                    self._ask()
            case protocol.History(events=pieces, last=is_last):
                for piece in pieces:
                    self._show_old(protocol.decode_event(bytes(piece)))
                if is_last:
                    self._history.flush()
            case _:
                pass

    def _show_old(self, event: ChatEvent) -> None:
        """Print an event of the history."""
        if isinstance(event, RunStarted) and event.prompt:
            self._history.line(f"you: {event.prompt}")
        if not isinstance(event, protocol.Left | protocol.StatusChanged):
            self._history.show(event)

    def _continue(self) -> None:
        """Send the next typed line, or leave if there are no more.

        Open questions then stay open.
        """
        if self._has_picked or (self._active and not (self._waiting and self._has_all_input)):
            return
        self._was_interrupted = False
        if self._typed and not self._waiting:
            self._submit(self._typed.popleft())
        elif self._has_all_input:
            self.end(self._exit_code)

    def _ask(self) -> None:
        """Print the first question that waits for an answer."""
        if not self._waiting:
            return
        asked = self._waiting[0]
        lines = question_lines(asked.question, asked.who) if isinstance(asked, QuestionOpened) else pick_lines(asked)
        self._printer.line("\n".join(lines))


class _Printer:
    """Prints events as lines; text of an agent in whole paragraphs."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._agent = ""
        self._kinds: dict[str, RunKind] = {}
        self._texts: dict[tuple[str, str | None], str] = {}  # unfinished paragraphs by run and sub-agent
        self._tools: dict[str, tuple[str, float]] = {}  # name and start by id
        self._limits: dict[str, str] = {}  # the last message about a usage limit, by run

    def line(self, text: str) -> None:
        """Print a text, if there is any, with one line end."""
        if text:
            self._write(text.rstrip("\n") + "\n")

    def flush(self, run: str | None = None) -> None:
        """Print the unfinished paragraphs of a run, by default of all."""
        for key in [key for key in self._texts if run in (None, key[0])]:
            self._flush_text(*key)

    def show(self, event: ChatEvent) -> None:
        """Print an event, unless it is a question or of no interest in lines."""
        match event:
            case protocol.StatusChanged():
                agent = f"{event.provider} {event.model}".strip() if event.ready else event.problem
                if agent and agent != self._agent:
                    self._agent = agent
                    self.line(f"agent: {agent}" if event.ready else agent)
            case RunStarted():
                self._kinds[event.run] = event.kind
                if event.kind is RunKind.WORKFLOW:
                    session = f" ({event.session})" if event.session else ""
                    self.line(f"workflow {event.title} started{session}")
            case RunEnded():
                self._show_end(event)
            case protocol.Activity():
                self._show_activity(event.run, event.event)
            case protocol.WorkflowActivity():
                self._show_workflow_event(event.event)
            case protocol.ShellOutput(text=text):
                self._write(text)
            case protocol.ChatNotice(text=text, level=level):
                self.line({protocol.Level.WARNING: "warning: ", protocol.Level.ERROR: "error: "}.get(level, "") + text)
            case protocol.Cleared():
                self.line("a new conversation")
            case protocol.Left(message=message):
                self.line(message)
            case _:
                pass

    def _show_end(self, event: RunEnded) -> None:
        self.flush(event.run)
        limit = self._limits.pop(event.run, "")
        # The message about the limit is already printed.
        message = event.message.rpartition(limit)[2].lstrip(". ") if limit else event.message
        is_workflow = self._kinds.pop(event.run, None) is RunKind.WORKFLOW
        if is_workflow or event.status not in ("done", "completed") or message:
            self.line(f"{event.status}: {message}" if message else event.status)
        if event.resume:
            self.line(f"Resume with: {event.resume}")
        if event.actions:
            self.line(f"Next: {', '.join(event.actions)}")

    def _show_activity(self, run: str, event: object) -> None:
        match event:
            case events.TextDelta(text=text, agent=agent):
                paragraphs, rest = split_paragraphs(self._texts.get((run, agent), "") + text)
                self._texts[run, agent] = rest
                for paragraph in paragraphs:
                    self.line(paragraph)
            case events.ToolStarted(id=id, name=name, input=input, agent=agent):
                self._flush_text(run, agent)
                self._tools[id] = (name, monotonic())
                values = (input.get(key) for key in _DETAILS)
                detail = next((value for value in values if isinstance(value, str) and value.strip()), "")
                self.line(f"tool: {name} {_first_line(detail)}".rstrip())
            case events.ToolEnded(id=id, error=error):
                name, started = self._tools.pop(id, ("tool", monotonic()))
                if error is None:
                    self.line(f"tool: {name} done, {duration(monotonic() - started)}")
                else:
                    self.line(f"tool: {name} failed: {_first_line(error)}")
            case events.SubagentStarted(name=name, task=task):
                self.line(f"sub-agent: {name} started: {_first_line(task)}".rstrip(": "))
            case events.SubagentEnded(id=id, error=error):
                self._flush_text(run, id)
                self.line("sub-agent: done" if error is None else f"sub-agent: failed: {_first_line(error)}")
            case events.LimitReached(message=text):
                self._limits[run] = text
                self.line(text)
            case events.Notice(text=text):
                self.line(text)
            case events.TurnEnded():
                self.flush(run)
            case _:
                pass

    def _show_workflow_event(self, event: object) -> None:
        match event:
            case workflow.NodeStarted(description=text) if text:
                self.line(f"step: {text}")
            case workflow.NodeEnded() if event.error is not None:
                self.line(f"step: {event.description or event.node} failed: {_first_line(event.why)}")
            case workflow.TasksChanged(tasks=tasks):
                done = sum(task.status.is_done for task in tasks)
                self.line(f"tasks: {done} of {len(tasks)} done")
            case workflow.Warning(text=text):
                self.line(text)
            case _:
                pass

    def _flush_text(self, run: str, agent: str | None) -> None:
        rest = self._texts.pop((run, agent), "").strip("\n")
        if rest.strip():
            self.line(rest)


def split_paragraphs(text: str) -> tuple[list[str], str]:
    """Return the finished paragraphs and the rest.

    A fenced block is part of one paragraph.
    """
    paragraphs: list[str] = []
    start = 0
    position = 0
    is_fenced = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith(("```", "~~~")) and line.endswith("\n"):
            is_fenced = not is_fenced
        if line == "\n" and not is_fenced:
            paragraph = text[start:position].strip("\n")
            if paragraph:
                paragraphs.append(paragraph)
            start = position + 1
        position += len(line)
    return paragraphs, text[start:]


def question_lines(question: Question, who: str) -> list[str]:
    """Return a question with numbered options, and how to answer it."""
    lines = [f"{who} asks: {question.text}" if who else f"question: {question.text}"]
    for number, option in enumerate(question.options, 1):
        description = f": {option.description}" if option.description else ""
        lines.append(f"{number}. {option.label}{description}")
    how = "type an answer"
    if question.options:
        how = "type numbers with commas" if question.multi_select else "type a number, or an answer of your own"
    default = "" if question.default is None else f"; only Enter means {question.default}"
    return [*lines, how + default]


def pick_lines(asked: PickOpened) -> list[str]:
    """Return a choice with numbered rows."""
    lines = [asked.title]
    for number, row in enumerate(asked.rows, 1):
        detail = f": {row.detail}" if row.detail else ""
        lines.append(f"{number}. {row.label}{detail}{' (now)' if row.current else ''}")
    return [*lines, "type a number, or only Enter to cancel"]


def answers_of(question: Question, line: str) -> tuple[str, ...] | None:
    """Return the answers of a line: options by number, the typed text, or the default.

    None without an answer.
    """
    text = line.strip()
    if not text:
        return None if question.default is None else (question.default,)
    labels = [option.label for option in question.options]
    parts = [part.strip() for part in text.split(",")] if question.multi_select else [text]
    chosen = [label for label in (_numbered(part, labels) for part in parts) if label is not None]
    return tuple(dict.fromkeys(chosen)) if len(chosen) == len(parts) else (text,)


def _numbered(text: str, values: Sequence[str]) -> str | None:
    """Return the value with the number that a text is, counted from 1, or None."""
    text = text.strip()
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
    return values[number - 1] if 1 <= number <= len(values) else None


def _first_line(text: str) -> str:
    return cut(text.strip().partition("\n")[0].strip(), _DETAIL_COLUMNS)
