"""Apply engine events and user intents to the screen's state, in place.

No Textual, no file and no clock: `now` is an argument, in Unix time. Late, duplicate or
missing events do no harm: events of unknown or ended runs are dropped, and the end of a
run ends everything that belongs to it. A run id is used once: a resumed workflow is a
new run of the screen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

import msgspec

from atomic.chat.protocol import (
    Activity,
    Cleared,
    CommandsListed,
    FilesFound,
    GraphDrawn,
    History,
    Interrupt,
    Left,
    Level,
    News,
    PickOpened,
    QuestionClosed,
    QuestionOpened,
    RunEnded,
    RunKind,
    RunStarted,
    Said,
    ShellSaid,
    StatusChanged,
    ThemeSet,
    WorkflowNews,
    decode_news,
)
from atomic.runs import events as wf
from atomic.tui.state.amounts import spent
from atomic.tui.state.changes import Changes
from atomic.tui.state.clip import Clip
from atomic.tui.state.graph import Graph
from atomic.tui.state.model import Block, BlockKind, QuestionEntry, Queued, Run, RunState, Screen
from atomic.tui.state.run_blocks import RunBlocks

__all__ = ["Changes", "Store"]

_KEPT_RUNS = 64  # ended runs to keep; `is_busy` checks them all
_OF_HISTORY = (
    RunStarted,
    Activity,
    WorkflowNews,
    GraphDrawn,
    ShellSaid,
    RunEnded,
    QuestionOpened,
    QuestionClosed,
    Said,
)
_LEVELS = {Level.INFO: BlockKind.NOTICE, Level.WARNING: BlockKind.WARNING, Level.ERROR: BlockKind.ERROR}
_FINE = frozenset({"done", "completed"})


@dataclass(slots=True)
class _Telling:
    """An active run and the objects that apply its events."""

    run: Run
    story: RunBlocks
    graph: Graph | None = None
    head: Block | None = None
    said: Clip | None = None
    is_told: bool = True  # the engine has confirmed the start
    is_old: bool = False  # from the history of a resumed chat
    over: float = 0.0  # when a workflow reports its end


class Store:
    """Applies engine events and user intents to a `Screen`."""

    def __init__(self, screen: Screen | None = None) -> None:
        self.screen = screen or Screen()
        self._ids = count(len(self.screen.blocks) + 1)
        self._queue_ids = count(1)
        self._tellings: dict[str, _Telling] = {}
        self._asked: dict[str, Block] = {}  # by question id, until it is closed or its run ends
        self._unreadable = 0
        self._is_old = False  # a history is being applied

    # engine events

    def apply(self, news: News, now: float) -> Changes:
        """Apply one event and return the affected parts."""
        return self._FOLDS[type(news)](self, news, now)

    def _status(self, news: StatusChanged, now: float) -> Changes:
        is_new = bool(news.problem) and news.problem != self.screen.status.problem
        self.screen.status = news
        if is_new and not self.screen.blocks:  # the status line is too short for it
            return Changes.STATUS | self._said(Said(text=news.problem, level=Level.WARNING), now)
        return Changes.STATUS

    def _commands(self, news: CommandsListed, now: float) -> Changes:
        self.screen.commands = news.commands
        self.screen.agents_by_name = news.agents
        return Changes.COMMANDS

    def _activity(self, news: Activity, now: float) -> Changes:
        telling = self._heard(news.run, now)
        return telling.story.tell(news.event, self._time(news.time, now)) if telling else Changes.NONE

    def _workflow(self, news: WorkflowNews, now: float) -> Changes:
        telling = self._heard(news.run, now)
        if telling is None or telling.graph is None:
            return Changes.NONE
        event = news.event
        if isinstance(event, wf.QuestionAsked):  # it may be an old one: QuestionOpened reports whether it is open
            return self._show_question(telling, event.question.id, event.question.text, event.node, status="")
        if isinstance(event, wf.RunStarted):
            self._began(telling, event.time)
        elif isinstance(event, wf.RunEnded):
            telling.over = event.time
        return telling.graph.tell(event, event.time or now)  # the log may be from yesterday

    def _began(self, telling: _Telling, time: float) -> None:
        """Move the start of a watched run back to its real start."""
        telling.run.started = min(telling.run.started, time)
        if telling.head is not None:
            telling.head.started = min(telling.head.started, time)
            telling.head.version += 1

    def _drawn(self, news: GraphDrawn, now: float) -> Changes:
        run = self.screen.runs.get(news.run)
        if run is None:
            return Changes.NONE
        run.picture = news.lines
        run.places = news.places
        return Changes.GRAPH

    def _shell_said(self, news: ShellSaid, now: float) -> Changes:
        telling = self._heard(news.run, now)
        if telling is None or telling.head is None:
            return Changes.NONE
        telling.said = telling.said or Clip()
        telling.said.add(news.text)
        telling.head.output = telling.said.text()
        telling.head.version += 1
        return Changes.TRANSCRIPT

    def _said(self, news: Said, now: float) -> Changes:
        block = Block(next(self._ids), _LEVELS[news.level], run=news.run, text=news.text, gap=True)
        if news.markdown and news.level is Level.INFO:
            # It looks like an answer, but is not from an agent.
            block.kind = BlockKind.ANSWER
            block.run = ""
        self.screen.blocks.append(block)
        return Changes.TRANSCRIPT

    def _theme(self, news: ThemeSet, now: float) -> Changes:
        self.screen.theme = news.name
        return Changes.THEME

    def _pick(self, news: PickOpened, now: float) -> Changes:
        self.screen.pick = news
        return Changes.PICK

    def _files(self, news: FilesFound, now: float) -> Changes:
        return Changes.NONE  # only the prompt needs it

    def _left(self, news: Left, now: float) -> Changes:
        self.screen.left = news.message
        return Changes.LEFT

    def _cleared(self, news: Cleared, now: float) -> Changes:
        screen = self.screen
        screen.blocks.clear()
        screen.plan = ()
        self._asked.clear()
        for telling in self._tellings.values():
            telling.story.forget()
            telling.head = None
            if telling.graph is not None:
                telling.graph.forget()
        if not any(telling.graph is not None for telling in self._tellings.values()):
            screen.tasks = ()
        return Changes.TRANSCRIPT | Changes.TASKS | Changes.AGENTS | self._forget_ended(0)

    # runs

    def begin(self, run: str, kind: RunKind, prompt: str, now: float) -> Changes:
        """Show at once what the user sent. The engine's `RunStarted` adds details later."""
        if run in self.screen.runs:
            return Changes.NONE
        telling = self._open(RunStarted(run=run, kind=kind, prompt=prompt), now)
        telling.is_told = False
        return Changes.TRANSCRIPT | Changes.STATUS | Changes.AGENTS

    def _started(self, news: RunStarted, now: float) -> Changes:
        telling = self._tellings.get(news.run)
        if telling is not None and not telling.is_told:
            return self._confirm(telling, news)
        if news.run in self.screen.runs:
            return Changes.NONE
        self._open(news, self._time(news.time, now))
        return Changes.TRANSCRIPT | Changes.STATUS | Changes.AGENTS | Changes.GRAPH | Changes.TASKS

    def _open(self, news: RunStarted, now: float) -> _Telling:
        screen = self.screen
        self._forget_ended(_KEPT_RUNS)
        self._forget_agents()
        run = Run(news.run, news.kind, news.title, started=now, heard=now, session=news.session)
        screen.runs[run.id] = run
        telling = self._tellings[run.id] = _Telling(run, RunBlocks(screen, run, self._ids), is_old=self._is_old)
        if news.prompt and news.kind is not RunKind.SHELL:
            telling.story.add(Block(0, BlockKind.USER, text=news.prompt), gap=True)
        self._begin_kind(telling, news, now)
        return telling

    def _begin_kind(self, telling: _Telling, news: RunStarted, now: float) -> None:
        story = telling.story
        run = telling.run
        if news.kind is RunKind.TURN:
            self.screen.plan = ()
            story.begin_own(self.screen.status.provider or "agent", news.prompt, now)
        elif news.kind is RunKind.SHELL:
            command = (news.prompt or news.title).removeprefix("!").strip()
            telling.head = story.add(Block(0, BlockKind.SHELL, title=command, status="running", started=now))
            story.live[telling.head.id] = telling.head
        elif news.kind is RunKind.WORKFLOW:
            self.screen.tasks = ()
            telling.graph = Graph(self.screen, run, story)
            head = Block(0, BlockKind.RUN, title=news.title, detail=news.session, status="running", started=now)
            telling.head = story.add(head)
            story.live[head.id] = head

    def _confirm(self, telling: _Telling, news: RunStarted) -> Changes:
        """Complete a run that was only sent with the engine's details."""
        run = telling.run
        telling.is_told = True
        run.title = news.title or run.title
        run.session = news.session or run.session
        if news.kind is not run.kind:
            telling.story.end("done", run.started)
            self.screen.agents.pop(f"{run.id}/", None)
            run.kind = news.kind
            telling.story = RunBlocks(self.screen, run, self._ids)
            self._begin_kind(telling, news, run.started)
        return Changes.TRANSCRIPT | Changes.STATUS | Changes.AGENTS | Changes.GRAPH

    def _ended(self, news: RunEnded, now: float) -> Changes:
        telling = self._tellings.pop(news.run, None)
        if telling is None:
            return Changes.NONE
        run = telling.run
        now = telling.over or self._time(news.time, now)
        run.state = RunState.ENDED
        run.ended = now
        run.status = news.status
        run.message = news.message
        run.resume = news.resume
        if telling.graph is not None:
            telling.graph.end(news.status)
        telling.story.end(news.status, now)
        self._close_questions(run.id)
        self._tell_end(telling)
        return Changes.TRANSCRIPT | Changes.STATUS | Changes.AGENTS | Changes.GRAPH | Changes.QUESTIONS

    def _tell_end(self, telling: _Telling) -> None:
        """Add a block that explains the end of a run, unless it is obvious."""
        run = telling.run
        story = telling.story
        if run.kind is RunKind.WORKFLOW:
            seconds = max(0.0, (run.ended or 0.0) - run.started)
            end = Block(0, BlockKind.RUN, title=run.title, text=run.message, output=run.resume, status=run.status)
            end.seconds = seconds
            end.input = spent(run.usage)
            story.add(end)
        elif run.status == "interrupted":
            story.note(BlockKind.NOTICE, run.message or "Interrupted.")
        elif run.status not in _FINE and run.message:
            story.fail(BlockKind.WARNING if run.status == "limit" else BlockKind.ERROR, run.message)
        elif run.status in _FINE and run.message:
            story.note(BlockKind.NOTICE, run.message)
        if run.resume and run.kind is not RunKind.WORKFLOW:
            story.note(BlockKind.NOTICE, f"Resume with: {run.resume}")

    def _heard(self, id: str, now: float) -> _Telling | None:
        """Return the active run for an event, or None if it is unknown or has ended."""
        telling = self._tellings.get(id)
        if telling is None:
            return None
        run = telling.run
        run.heard = now
        if run.state is RunState.STARTING:
            run.state = RunState.ACTIVE
        return telling

    def _forget_ended(self, kept: int) -> Changes:
        runs = self.screen.runs
        ended = [id for id, run in runs.items() if not run.is_active]
        for id in ended[: max(0, len(ended) - kept)]:
            del runs[id]
        self._forget_agents()
        return Changes.STATUS | Changes.GRAPH

    def _forget_agents(self) -> None:
        agents = self.screen.agents
        for key in [key for key, agent in agents.items() if agent.run not in self._tellings]:
            del agents[key]

    def _time(self, told: float, now: float) -> float:
        """Return the event's time for a history. Live events happen now: clocks may differ."""
        return told if self._is_old and told else now

    # questions

    def _question(self, news: QuestionOpened, now: float) -> Changes:
        telling = self._tellings.get(news.run)
        if news.id in self.screen.questions or (telling is None and (news.run or self._is_old)):
            return Changes.NONE
        self.screen.questions[news.id] = QuestionEntry(news.id, news.run, news.question, news.who)
        shown = self._asked.pop(news.question.id, None)
        if shown is not None and shown.run == news.run:
            self._asked[news.id] = shown
            shown.status = "waiting"
            shown.version += 1
            return Changes.QUESTIONS | Changes.TRANSCRIPT
        return Changes.QUESTIONS | self._show_question(telling, news.id, news.question.text, news.who, "waiting")

    def _show_question(self, telling: _Telling | None, id: str, text: str, who: str, status: str) -> Changes:
        if id in self._asked:
            return Changes.NONE
        block = Block(0, BlockKind.QUESTION, text=text, title=who, status=status)
        if telling is None:
            block.id = next(self._ids)
            block.gap = True
            self.screen.blocks.append(block)
        else:
            telling.story.add(block)
        self._asked[id] = block
        return Changes.TRANSCRIPT

    def _question_closed(self, news: QuestionClosed, now: float) -> Changes:
        self.screen.questions.pop(news.id, None)
        block = self._asked.pop(news.id, None)
        if block is None:
            return Changes.QUESTIONS
        block.output = ", ".join(news.answers or ())
        block.status = "done" if news.answers is not None else "interrupted"
        block.version += 1
        return Changes.QUESTIONS | Changes.TRANSCRIPT

    def _close_questions(self, run: str) -> None:
        questions = self.screen.questions
        for id in [id for id, entry in questions.items() if entry.run == run]:
            del questions[id]
        for id in [id for id, block in self._asked.items() if block.run == run]:
            block = self._asked.pop(id)
            if block.status == "waiting":
                block.status = "interrupted"
                block.version += 1

    # history

    def _history(self, news: History, now: float) -> Changes:
        changed = Changes.NONE
        self._is_old = True
        try:
            for raw in news.news:
                changed |= self._old(raw, now)
        finally:
            self._is_old = False
        if news.last:
            changed |= self._end_history(now)
        return changed

    def _old(self, raw: msgspec.Raw, now: float) -> Changes:
        try:
            old = decode_news(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._unreadable += 1
            return Changes.NONE
        return self.apply(old, now) if isinstance(old, _OF_HISTORY) else Changes.NONE

    def _end_history(self, now: float) -> Changes:
        """End the runs that the history left open. A workflow may still be running elsewhere."""
        changed = Changes.NONE
        for telling in [telling for telling in self._tellings.values() if telling.is_old]:
            run = telling.run
            way = f"It may still be running: atomic attach {run.session}" if run.session else ""
            changed |= self._ended(RunEnded(run=run.id, status="interrupted", message=way), run.started)
        if self._unreadable:
            many = "1 entry" if self._unreadable == 1 else f"{self._unreadable:,} entries"
            changed |= self._said(Said(text=f"{many} of a newer Atomic could not be read.", level=Level.WARNING), now)
            self._unreadable = 0
        return changed

    # user intents

    def stop(self, run: str, now: float) -> Interrupt | None:
        """Mark a run as stopping, or as forced the second time. Return None if it is not active."""
        telling = self._tellings.get(run)
        if telling is None:
            return None
        if telling.run.state is RunState.STOPPING:
            telling.run.forced = True
            return Interrupt(run=run, force=True)
        telling.run.state = RunState.STOPPING
        telling.run.heard = now
        return Interrupt(run=run)

    def stop_foreground(self, now: float) -> Interrupt | None:
        """Stop the user's newest run, or else the newest workflow."""
        ids = [telling.run.id for telling in self._tellings.values() if telling.graph is None]
        ids = ids or list(self._tellings)
        return self.stop(ids[-1], now) if ids else None

    def enqueue(self, text: str) -> Changes:
        """Queue a text until the agent is free."""
        self.screen.queue.append(Queued(next(self._queue_ids), text))
        return Changes.QUEUE

    def dequeue(self) -> str | None:
        """Remove and return the oldest queued text."""
        return self.screen.queue.pop(0).text if self.screen.queue else None

    def edit_queue(self, id: int, text: str) -> Changes:
        """Change a queued text. An empty text removes it."""
        for at, queued in enumerate(self.screen.queue):
            if queued.id == id:
                queued.text = text
                if not text.strip():
                    del self.screen.queue[at]
                return Changes.QUEUE
        return Changes.NONE

    def toggle(self, block_id: int) -> Changes:
        """Fold or unfold a block. A sub-agent's head hides or shows its blocks."""
        blocks = self.screen.blocks
        at = next((at for at in range(len(blocks) - 1, -1, -1) if blocks[at].id == block_id), None)
        if at is None:
            return Changes.NONE
        block = blocks[at]
        block.folded = not block.folded
        block.version += 1
        if block.kind is BlockKind.SUBAGENT:
            _hide_below(blocks, at)
        return Changes.TRANSCRIPT

    def close_question(self, id: str) -> Changes:
        """Close a question that the user answered or dismissed. The engine reports the result."""
        return Changes.QUESTIONS if self.screen.questions.pop(id, None) is not None else Changes.NONE

    def close_pick(self) -> Changes:
        """Close the picker."""
        self.screen.pick = None
        return Changes.PICK

    _FOLDS: ClassVar[dict[type[News], Callable[[Any, Any, float], Changes]]] = {
        StatusChanged: _status,
        CommandsListed: _commands,
        RunStarted: _started,
        Activity: _activity,
        WorkflowNews: _workflow,
        GraphDrawn: _drawn,
        ShellSaid: _shell_said,
        RunEnded: _ended,
        QuestionOpened: _question,
        QuestionClosed: _question_closed,
        PickOpened: _pick,
        FilesFound: _files,
        Said: _said,
        ThemeSet: _theme,
        Cleared: _cleared,
        History: _history,
        Left: _left,
    }


def _hide_below(blocks: list[Block], at: int) -> None:
    """Hide the blocks below folded heads and show the others."""
    top = blocks[at]
    folded: list[Block] = [top] if top.folded or top.hidden else []
    for below in range(at + 1, len(blocks)):
        block = blocks[below]
        if block.depth <= top.depth:
            return
        while folded and block.depth <= folded[-1].depth:
            folded.pop()
        block.hidden = bool(folded)
        block.version += 1
        if not folded and block.kind is BlockKind.SUBAGENT and block.folded:
            folded.append(block)
