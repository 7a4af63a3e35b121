"""The conversation as lines, each printed once: for screen readers, dumb terminals and pipes. Nothing moves.

What waits for an answer is a numbered list; the next line that is typed answers it. A line that is typed while the
agent works is sent when it is done; if no other will follow, for it came out of a pipe, it may be an answer too.
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
from typing import TypeVar
from uuid import uuid4

import msgspec

from atomic.base.errors import ExitCode
from atomic.base.terminal import harmless
from atomic.chat.client import ChatClient, ProcessClient
from atomic.chat.protocol import (
    Activity,
    Answer,
    ChatEvent,
    ChatNotice,
    Cleared,
    History,
    Interrupt,
    Leave,
    Left,
    Level,
    Picked,
    PickOpened,
    QuestionClosed,
    QuestionOpened,
    RunEnded,
    RunKind,
    RunStarted,
    ScreenSize,
    Shell,
    ShellOutput,
    StatusChanged,
    Submit,
    WorkflowActivity,
    decode_event,
)
from atomic.providers.events import (
    LimitReached,
    Notice,
    SubagentEnded,
    SubagentStarted,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from atomic.questions import Question
from atomic.runs import events as workflow
from atomic.tui.main import ChatRequest

GOODBYE = 5.0  # seconds for the engine's last word
_LONGEST_DETAIL = 100
_WIDTH = 80  # of what a command draws
_OLD = "old:"  # before the id of a run of the history, which a run of this process may have too
_DETAILS = ("command", "file_path", "path", "pattern", "query", "url", "description", "prompt")


def talk(request: ChatRequest, program: Sequence[str] | None = None) -> int:
    """Talk until the person leaves; the exit code."""
    code = asyncio.run(_talk(request, program))
    sys.stdout.flush()
    os._exit(code)  # the thread that reads lines is not waited for: nobody may type another


async def _talk(request: ChatRequest, program: Sequence[str] | None) -> int:
    link = ProcessClient(request.engine_arguments(), session=request.resume or "", program=program)
    talk = PlainTalk(link, _write)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, talk.interrupt)
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, talk.end, ExitCode.SIGNALLED + number)
    _read_lines(loop, talk.hear)
    try:
        return await talk.run(request.prompt)
    finally:
        await link.close()


def _read_lines(loop: asyncio.AbstractEventLoop, hear: Callable[[str | None], None]) -> None:
    """Lines of standard input, read beside: a file, a pipe and a terminal alike. None: there are no more."""

    def read() -> None:
        for line in iter(sys.stdin.readline, ""):
            loop.call_soon_threadsafe(hear, line.rstrip("\n"))
        loop.call_soon_threadsafe(hear, None)

    threading.Thread(target=read, daemon=True).start()


def _write(text: str) -> None:
    data = memoryview(harmless(text).encode("utf-8", "replace"))
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        os._exit(ExitCode.SIGNALLED + signal.SIGPIPE)  # nobody reads


class PlainTalk:
    """One conversation: news become lines, lines become intents."""

    def __init__(self, link: ChatClient, write: Callable[[str], None]) -> None:
        self._link, self._write = link, write
        self._active: dict[str, RunKind] = {}
        self._texts: dict[tuple[str, str | None], str] = {}  # of a run and an agent: what is no whole paragraph yet
        self._tools: dict[str, tuple[str, float]] = {}
        self._limits: dict[str, str] = {}  # by run: what its agent said of the last limit
        self._waiting: deque[QuestionOpened | PickOpened] = deque()
        self._typed: deque[str] = deque()
        self._kept = ""  # lines that ended with a backslash
        self._old_runs: dict[str, RunKind] = {}  # of the history that is printed
        self._process = uuid4().hex[:8]  # a log that several processes write has no id of a run twice
        self._numbers = count(1)
        self._agent = ""
        self._exit_code: int = ExitCode.DONE
        self._has_all = False  # no line will come any more
        self._has_picked = False  # what comes of it has not begun yet
        self._is_leaving = False
        self._was_interrupted = False

    async def run(self, prompt: str) -> int:
        """Until the engine has said its last word, or does not in time."""
        self._link.send(ScreenSize(width=_WIDTH))
        if prompt:
            self._submit(prompt)
        else:
            self._line("atomic: type a line and press Enter; /help lists commands, /exit leaves")
        async for news in self._link.events():
            self._show(news)
            if isinstance(news, Left):
                break
        return self._exit_code

    # what the person does

    def hear(self, line: str | None) -> None:
        """A line was typed; None: there will be no more."""
        if line is None:
            self._has_all = True
            self._answer_ahead()
            return
        if line.endswith("\\"):
            self._kept += line[:-1] + "\n"
            return
        line, self._kept = self._kept + line, ""
        if self._waiting:
            self._answer(line)
        elif self._active:
            self._typed.append(line)
        elif line.strip():
            self._submit(line)

    def interrupt(self) -> None:
        """Ctrl+C: stop what is at work; if nothing is, or once more: leave."""
        foreground = [run for run, kind in self._active.items() if kind is not RunKind.WORKFLOW] or [*self._active]
        if not foreground or self._was_interrupted:
            self.end(ExitCode.SIGNALLED + signal.SIGINT)
            return
        self._was_interrupted = True
        self._typed.clear()
        self._line("stopping (Ctrl+C once more leaves)")
        self._link.send(Interrupt(run=foreground[-1]))

    def end(self, exit_code: int) -> None:
        """Leave; the engine has a moment for its last word."""
        self._exit_code = exit_code
        if self._is_leaving:
            return
        self._is_leaving = True
        self._link.send(Leave(pause=True))
        loop = asyncio.get_running_loop()
        loop.call_later(GOODBYE, lambda: loop.create_task(self._link.close()))

    def _submit(self, text: str) -> None:
        self._was_interrupted = False
        run = f"plain-{self._process}-{next(self._numbers)}"
        if text.startswith("!") and text[1:].strip():
            self._active[run] = RunKind.SHELL
            self._link.send(Shell(run=run, command=text[1:].strip()))
            return
        self._active[run] = RunKind.TURN
        self._link.send(Submit(run=run, text=text))

    def _answer(self, line: str) -> None:
        asked = self._waiting[0]
        if isinstance(asked, PickOpened):
            chosen = _numbered(line, [row.value for row in asked.rows])
            if line.strip() and chosen is None:
                self._line(f"a number from 1 to {len(asked.rows)}, or nothing to leave it")
                return
            self._waiting.popleft()
            self._has_picked = chosen is not None
            self._link.send(Picked(request=asked.request, value=chosen))
        else:
            answers = answers_of(asked.question, line)
            self._waiting.popleft()
            self._link.send(Answer(question=asked.id, answers=answers))
        self._ask()

    def _answer_ahead(self) -> None:
        """Where no line will come any more, those that wait are the answers; a command is none to a choice."""
        if not self._has_all:
            return
        while self._waiting and self._typed:
            asked, line = self._waiting[0], self._typed.popleft()
            is_command = isinstance(asked, PickOpened) and not _numbered(line, [row.value for row in asked.rows])
            if is_command and line.strip():
                self._typed.appendleft(line)
            self._answer("" if is_command else line)
        self._go_on()

    # what happens

    def _show(self, news: ChatEvent) -> None:
        match news:
            case StatusChanged():
                self._status(news)
            case RunStarted():
                self._began(news)
            case Activity(run=run, event=event):
                self._activity(run, event)
            case WorkflowActivity(event=event):
                self._workflow(event)
            case ShellOutput(text=text):
                self._write(text)
            case RunEnded():
                self._ended(news)
            case QuestionOpened() | PickOpened():
                self._waiting.append(news)
                if len(self._waiting) == 1:
                    self._ask()
                self._answer_ahead()
            case QuestionClosed(id=id):
                self._close(id)
            case ChatNotice():
                self._said(news)
            case Cleared():
                self._line("a new conversation")
            case History(events=pieces, last=is_last):
                for piece in pieces:
                    self._show_old(bytes(piece))
                if is_last:
                    self._end_old()
            case Left(message=message):
                self._line(message)
            case _:
                pass

    def _show_old(self, line: bytes) -> None:
        """Print what was said before. Its runs are over, and no answer to its questions is expected."""
        news = decode_event(line)
        match news:
            case RunStarted():
                if news.prompt:
                    self._line(f"you: {news.prompt}")
                self._old_runs[news.run] = news.kind
                self._tell_start(news)
            case RunEnded():
                self._tell_end(_as_old(news), self._old_runs.pop(news.run, None))
            case Activity():
                self._show(_as_old(news))
            case QuestionOpened() | PickOpened() | Left() | StatusChanged():
                pass
            case _:
                self._show(news)

    def _end_old(self) -> None:
        """Print what is left: of a turn that was killed, or of a sub-agent whose last words were logged late."""
        for run, agent in [key for key in self._texts if key[0].startswith(_OLD)]:
            self._flush(run, agent)
        self._old_runs.clear()

    def _status(self, status: StatusChanged) -> None:
        agent = f"{status.provider} {status.model}".strip() if status.ready else status.problem
        if agent and agent != self._agent:
            self._agent = agent
            self._line(f"agent: {agent}" if status.ready else agent)

    def _began(self, news: RunStarted) -> None:
        self._has_picked = self._has_picked and news.run in self._active  # one that we have not sent comes of it
        self._active[news.run] = news.kind
        self._tell_start(news)

    def _tell_start(self, news: RunStarted) -> None:
        if news.kind is RunKind.WORKFLOW:
            self._line(f"workflow {news.title} began ({news.session})".replace(" ()", ""))

    def _activity(self, run: str, event: object) -> None:
        match event:
            case TextDelta(text=text, agent=agent):
                self._take(run, agent, text)
            case ToolStarted(id=id, name=name, input=given, agent=agent):
                self._flush(run, agent)
                self._tools[id] = (name, monotonic())
                self._line(f"tool: {name} {detail_of(given)}".rstrip())
            case ToolEnded(id=id, error=error):
                name, began = self._tools.pop(id, ("tool", monotonic()))
                how = f"failed: {first_line(error)}" if error is not None else f"done, {monotonic() - began:.1f} s"
                self._line(f"tool: {name} {how}")
            case SubagentStarted(name=name, task=task):
                self._line(f"sub-agent: {name} began: {first_line(task)}".rstrip(": "))
            case SubagentEnded(id=id, error=error):
                self._flush(run, id)
                self._line("sub-agent: " + ("done" if error is None else f"failed: {first_line(error)}"))
            case LimitReached(message=text):
                self._limits[run] = text
                self._line(text)
            case Notice(text=text):
                self._line(text)
            case TurnEnded():
                self._flush_all(run)
            case _:
                pass

    def _workflow(self, event: object) -> None:
        match event:
            case workflow.NodeStarted(description=text) if text:
                self._line(f"step: {text}")
            case workflow.NodeEnded() if event.error is not None:
                self._line(f"step: {event.description or event.node} failed: {first_line(event.why)}")
            case workflow.TasksChanged(tasks=tasks):
                done = sum(task.status.is_done for task in tasks)
                self._line(f"tasks: {done} of {len(tasks)} done")
            case workflow.Warning(text=text):
                self._line(text)
            case _:
                pass

    def _ended(self, news: RunEnded) -> None:
        self._tell_end(news, self._active.pop(news.run, None))
        self._go_on()

    def _tell_end(self, news: RunEnded, kind: RunKind | None) -> None:
        self._flush_all(news.run)
        limit = self._limits.pop(news.run, "")
        message = news.message.rpartition(limit)[2].lstrip(". ") if limit else news.message  # it has been said
        if kind is RunKind.WORKFLOW or news.status not in ("done", "completed") or message:
            self._line(": ".join(part for part in (news.status, message) if part))
        if news.resume:
            self._line(f"Resume with: {news.resume}")

    def _go_on(self) -> None:
        """Send what was typed meanwhile; if that was all, leave. Nobody will answer what waits then."""
        if self._has_picked or (self._active and not (self._waiting and self._has_all)):
            return
        self._was_interrupted = False
        if self._typed and not self._waiting:
            self._submit(self._typed.popleft())
        elif self._has_all:
            self.end(self._exit_code)

    def _said(self, news: ChatNotice) -> None:
        sign = {Level.WARNING: "warning: ", Level.ERROR: "error: "}.get(news.level, "")
        self._line(sign + news.text)

    def _close(self, id: str) -> None:
        is_first = bool(self._waiting) and getattr(self._waiting[0], "id", "") == id
        self._waiting = deque(one for one in self._waiting if getattr(one, "id", "") != id)
        if is_first:
            self._line("the question no longer needs an answer")
            self._ask()

    def _ask(self) -> None:
        if not self._waiting:
            return
        asked = self._waiting[0]
        lines = question_lines(asked.question, asked.who) if isinstance(asked, QuestionOpened) else pick_lines(asked)
        self._line("\n".join(lines))

    # text

    def _take(self, run: str, agent: str | None, text: str) -> None:
        """Print what has become whole paragraphs."""
        whole, rest = split_paragraphs(self._texts.get((run, agent), "") + text)
        self._texts[run, agent] = rest
        for paragraph in whole:
            self._line(paragraph)

    def _flush(self, run: str, agent: str | None) -> None:
        if (rest := self._texts.pop((run, agent), "").strip("\n")).strip():
            self._line(rest)

    def _flush_all(self, run: str) -> None:
        for key in [key for key in self._texts if key[0] == run]:
            self._flush(*key)

    def _line(self, text: str) -> None:
        if text:
            self._write(text.rstrip("\n") + "\n")


_OfRun = TypeVar("_OfRun", Activity, RunEnded)


def _as_old(news: _OfRun) -> _OfRun:
    return msgspec.structs.replace(news, run=_OLD + news.run)


def split_paragraphs(text: str) -> tuple[list[str], str]:
    """The paragraphs that are whole, and the rest; a fence is one paragraph, blank lines in it and all."""
    whole, begin, is_fenced = list[str](), 0, False
    at = 0
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith(("```", "~~~")) and line.endswith("\n"):
            is_fenced = not is_fenced
        if line == "\n" and not is_fenced:
            if paragraph := text[begin:at].strip("\n"):
                whole.append(paragraph)
            begin = at + 1
        at += len(line)
    return whole, text[begin:]


def question_lines(question: Question, who: str) -> list[str]:
    """A question with its answers numbered, and how to give one."""
    asker = f"{who} asks: " if who else "question: "
    lines = [f"{asker}{question.text}"]
    for number, option in enumerate(question.options, 1):
        lines.append(f"{number}. {option.label}" + (f": {option.description}" if option.description else ""))
    how = "type an answer"
    if question.options:
        how = "type numbers with commas" if question.multi_select else "type a number, or an answer of your own"
    return [*lines, how + ("" if question.default is None else f"; nothing is {question.default}")]


def pick_lines(asked: PickOpened) -> list[str]:
    """What to choose from, numbered."""
    rows = [
        f"{number}. {row.label}" + (f": {row.detail}" if row.detail else "") + (" (now)" if row.current else "")
        for number, row in enumerate(asked.rows, 1)
    ]
    return [asked.title, *rows, "type a number, or nothing to leave it"]


def answers_of(question: Question, line: str) -> tuple[str, ...] | None:
    """What a line answers: the labels of its numbers, its own words, the default, or nothing at all."""
    text = line.strip()
    if not text:
        return None if question.default is None else (question.default,)
    labels = [option.label for option in question.options]
    parts = [part.strip() for part in text.split(",")] if question.multi_select else [text]
    chosen = [_numbered(part, labels) for part in parts]
    if all(label is not None for label in chosen):
        return tuple(dict.fromkeys(label for label in chosen if label is not None))
    return (text,)


def _numbered(text: str, values: Sequence[str]) -> str | None:
    """The value whose number a text is."""
    text = text.strip()
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
    return values[number - 1] if 1 <= number <= len(values) else None


def detail_of(given: dict[str, object]) -> str:
    """What a tool is called for, in a few words."""
    for name in _DETAILS:
        if isinstance(value := given.get(name), str) and value.strip():
            return first_line(value)
    return ""


def first_line(text: str) -> str:
    """The first line that says something, if need be its beginning."""
    line = text.strip().partition("\n")[0].strip()
    return line if len(line) <= _LONGEST_DETAIL else line[: _LONGEST_DETAIL - 1] + "…"
