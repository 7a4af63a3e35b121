"""Apply engine events and user intents to the screen's state, in place.

No Textual, no file and no clock: `now` is an argument, in Unix time. Late, duplicate or
missing events do no harm: events of unknown or ended runs are dropped, and the end of a
run ends everything that belongs to it. A run id is used once: a resumed workflow is a
new run of the screen.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import msgspec

from atomic.chat.protocol import (
    Activity,
    ChatEvent,
    ChatNotice,
    Cleared,
    CommandsListed,
    FilesFound,
    GraphDrawn,
    History,
    Interrupt,
    Left,
    Level,
    PickOpened,
    QuestionClosed,
    QuestionOpened,
    RunEnded,
    RunKind,
    RunStarted,
    ShellOutput,
    StatusChanged,
    ThemeSet,
    WorkflowActivity,
    decode_event,
)
from atomic.runs import events as wf
from atomic.tui.state.graph import Graph
from atomic.tui.state.model import Block, BlockKind, Changes, QuestionEntry, Queued, RunEntry, RunState, Screen, spent
from atomic.tui.state.run_blocks import RunBlocks
from atomic.tui.state.tool_calls import Clip

__all__ = ["Changes", "Store"]

_KEPT_RUNS = 64  # ended runs to keep; `is_busy` checks them all
_OF_HISTORY = (
    RunStarted,
    Activity,
    WorkflowActivity,
    GraphDrawn,
    ShellOutput,
    RunEnded,
    QuestionOpened,
    QuestionClosed,
    ChatNotice,
)
_LEVELS = {Level.INFO: BlockKind.NOTICE, Level.WARNING: BlockKind.WARNING, Level.ERROR: BlockKind.ERROR}
_FINE = frozenset({"done", "completed"})


@dataclass(slots=True)
class _ActiveRun:
    """An active run and the objects that apply its events."""

    run: RunEntry
    blocks: RunBlocks
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
        self._active: dict[str, _ActiveRun] = {}
        self._asked: dict[str, Block] = {}  # by question id, until it is closed or its run ends
        self._unreadable = 0
        self._is_old = False  # a history is being applied

    # engine events

    def apply(self, event: ChatEvent, now: float) -> Changes:
        """Apply one event and return the affected parts."""
        screen = self.screen
        match event:
            case Activity():
                active = self._find_active(event.run, now)
                return active.blocks.apply(event.event, self._time(event.time, now)) if active else Changes.NONE
            case WorkflowActivity():
                return self._workflow(event, now)
            case ShellOutput():
                return self._shell_said(event, now)
            case RunStarted():
                return self._started(event, now)
            case RunEnded():
                return self._ended(event, now)
            case QuestionOpened():
                return self._question(event)
            case QuestionClosed():
                return self._question_closed(event)
            case StatusChanged():
                is_new = bool(event.problem) and event.problem != screen.status.problem
                screen.status = event
                if is_new and not screen.blocks:  # the status line is too short for it
                    return Changes.STATUS | self._notice(ChatNotice(text=event.problem, level=Level.WARNING))
                return Changes.STATUS
            case ChatNotice():
                return self._notice(event)
            case GraphDrawn():
                run = screen.runs.get(event.run)
                if run is None:
                    return Changes.NONE
                run.drawing = event.lines
                run.positions = event.positions
                return Changes.GRAPH
            case CommandsListed():
                screen.commands = event.commands
                screen.agents_by_name = event.agents
                return Changes.COMMANDS
            case PickOpened():
                screen.pick = event
                return Changes.PICK
            case ThemeSet():
                screen.theme = event.name
                return Changes.THEME
            case Cleared():
                return self._cleared()
            case History():
                return self._history(event, now)
            case FilesFound():  # only the prompt needs it
                return Changes.NONE
            case Left():
                screen.left = event.message
                return Changes.LEFT

    def _workflow(self, activity: WorkflowActivity, now: float) -> Changes:
        active = self._find_active(activity.run, now)
        if active is None or active.graph is None:
            return Changes.NONE
        event = activity.event
        if isinstance(event, wf.QuestionAsked):  # it may be an old one: QuestionOpened reports whether it is open
            return self._show_question(active, event.question.id, event.question.text, event.node, status="")
        if isinstance(event, wf.RunStarted):  # a watched run began before the screen saw it
            active.run.started = min(active.run.started, event.time)
            if active.head is not None:
                active.head.started = min(active.head.started, event.time)
                active.head.version += 1
        elif isinstance(event, wf.RunEnded):
            active.over = event.time
        return active.graph.apply(event, event.time or now)  # the log may be from yesterday

    def _shell_said(self, event: ShellOutput, now: float) -> Changes:
        active = self._find_active(event.run, now)
        if active is None or active.head is None:
            return Changes.NONE
        active.said = active.said or Clip()
        active.said.add(event.text)
        active.head.output = active.said.text()
        active.head.version += 1
        return Changes.TRANSCRIPT

    def _notice(self, event: ChatNotice) -> Changes:
        block = Block(next(self._ids), _LEVELS[event.level], run=event.run, text=event.text, gap=True)
        if event.markdown and event.level is Level.INFO:
            # It looks like an answer, but is not from an agent.
            block.kind = BlockKind.ANSWER
            block.run = ""
        self.screen.blocks.append(block)
        return Changes.TRANSCRIPT

    def _cleared(self) -> Changes:
        screen = self.screen
        screen.blocks.clear()
        screen.plan = ()
        self._asked.clear()
        for active in self._active.values():
            active.blocks.forget()
            active.head = None
            if active.graph is not None:
                active.graph.forget()
        if not any(active.graph is not None for active in self._active.values()):
            screen.tasks = ()
        return Changes.TRANSCRIPT | Changes.TASKS | Changes.AGENTS | self._forget_ended(0)

    # runs

    def begin(self, run: str, kind: RunKind, prompt: str, now: float) -> Changes:
        """Show at once what the user sent.

        The engine's `RunStarted` adds details later.
        """
        if run in self.screen.runs:
            return Changes.NONE
        active = self._open(RunStarted(run=run, kind=kind, prompt=prompt), now)
        active.is_told = False
        return Changes.TRANSCRIPT | Changes.STATUS | Changes.AGENTS

    def _started(self, event: RunStarted, now: float) -> Changes:
        active = self._active.get(event.run)
        if active is not None and not active.is_told:
            return self._confirm(active, event)
        if event.run in self.screen.runs:
            return Changes.NONE
        self._open(event, self._time(event.time, now))
        return Changes.TRANSCRIPT | Changes.STATUS | Changes.AGENTS | Changes.GRAPH | Changes.TASKS

    def _open(self, event: RunStarted, now: float) -> _ActiveRun:
        screen = self.screen
        self._forget_ended(_KEPT_RUNS)
        self._forget_agents()
        run = RunEntry(event.run, event.kind, event.title, started=now, heard=now, session=event.session)
        screen.runs[run.id] = run
        active = self._active[run.id] = _ActiveRun(run, RunBlocks(screen, run, self._ids), is_old=self._is_old)
        if event.prompt and event.kind is not RunKind.SHELL:
            active.blocks.add(Block(0, BlockKind.USER, text=event.prompt), gap=True)
        self._begin_kind(active, event, now)
        return active

    def _begin_kind(self, active: _ActiveRun, event: RunStarted, now: float) -> None:
        blocks = active.blocks
        run = active.run
        if event.kind is RunKind.TURN:
            self.screen.plan = ()
            blocks.begin_own(self.screen.status.provider or "agent", event.prompt, now)
        elif event.kind is RunKind.SHELL:
            command = (event.prompt or event.title).removeprefix("!").strip()
            active.head = blocks.add(Block(0, BlockKind.SHELL, title=command, status="running", started=now))
            blocks.live[active.head.id] = active.head
        elif event.kind is RunKind.WORKFLOW:
            self.screen.tasks = ()
            active.graph = Graph(self.screen, run, blocks)
            head = Block(0, BlockKind.RUN, title=event.title, detail=event.session, status="running", started=now)
            active.head = blocks.add(head)
            blocks.live[head.id] = head

    def _confirm(self, active: _ActiveRun, event: RunStarted) -> Changes:
        """Complete a run that was only sent with the engine's details."""
        run = active.run
        active.is_told = True
        run.title = event.title or run.title
        run.session = event.session or run.session
        if event.kind is not run.kind:
            active.blocks.end("done", run.started)
            self.screen.agents.pop(f"{run.id}/", None)
            run.kind = event.kind
            active.blocks = RunBlocks(self.screen, run, self._ids)
            self._begin_kind(active, event, run.started)
        return Changes.TRANSCRIPT | Changes.STATUS | Changes.AGENTS | Changes.GRAPH

    def _ended(self, event: RunEnded, now: float) -> Changes:
        active = self._active.pop(event.run, None)
        if active is None:
            return Changes.NONE
        run = active.run
        now = active.over or self._time(event.time, now)
        run.state = RunState.ENDED
        run.ended = now
        run.status = event.status
        run.message = event.message
        run.resume = event.resume
        run.actions = event.actions
        if active.graph is not None:
            active.graph.end(event.status)
        active.blocks.end(event.status, now)
        self._close_questions(run.id)
        self._tell_end(active)
        return Changes.TRANSCRIPT | Changes.STATUS | Changes.AGENTS | Changes.GRAPH | Changes.QUESTIONS

    def _tell_end(self, active: _ActiveRun) -> None:
        """Add a block that explains the end of a run, unless it is obvious."""
        run = active.run
        blocks = active.blocks
        if run.kind is RunKind.WORKFLOW:
            seconds = max(0.0, (run.ended or 0.0) - run.started)
            end = Block(0, BlockKind.RUN, title=run.title, text=run.message, output=run.resume, status=run.status)
            end.actions = run.actions
            end.seconds = seconds
            end.input = spent(run.usage)
            blocks.add(end)
        elif run.status == "interrupted":
            blocks.note(BlockKind.NOTICE, run.message or "Interrupted.")
        elif run.status not in _FINE and run.message:
            blocks.fail(BlockKind.WARNING if run.status == "limit" else BlockKind.ERROR, run.message)
        elif run.status in _FINE and run.message:
            blocks.note(BlockKind.NOTICE, run.message)
        if run.resume and run.kind is not RunKind.WORKFLOW:
            blocks.note(BlockKind.NOTICE, f"Resume with: {run.resume}")

    def _find_active(self, id: str, now: float) -> _ActiveRun | None:
        """Return the active run for an event, or None if it is unknown or has ended."""
        active = self._active.get(id)
        if active is None:
            return None
        run = active.run
        run.heard = now
        if run.state is RunState.STARTING:
            run.state = RunState.ACTIVE
        return active

    def _forget_ended(self, kept: int) -> Changes:
        runs = self.screen.runs
        ended = [id for id, run in runs.items() if not run.is_active]
        for id in ended[: max(0, len(ended) - kept)]:
            del runs[id]
        self._forget_agents()
        return Changes.STATUS | Changes.GRAPH

    def _forget_agents(self) -> None:
        agents = self.screen.agents
        for key in [key for key, agent in agents.items() if agent.run not in self._active]:
            del agents[key]

    def _time(self, told: float, now: float) -> float:
        """Return the event's time for a history.

        Live events happen now: clocks may differ.
        """
        return told if self._is_old and told else now

    # questions

    def _question(self, event: QuestionOpened) -> Changes:
        active = self._active.get(event.run)
        if event.id in self.screen.questions or (active is None and (event.run or self._is_old)):
            return Changes.NONE
        self.screen.questions[event.id] = QuestionEntry(event.id, event.run, event.question, event.who)
        shown = self._asked.pop(event.question.id, None)
        if shown is not None and shown.run == event.run:
            self._asked[event.id] = shown
            shown.status = "waiting"
            shown.version += 1
            return Changes.QUESTIONS | Changes.TRANSCRIPT
        return Changes.QUESTIONS | self._show_question(active, event.id, event.question.text, event.who, "waiting")

    def _show_question(self, active: _ActiveRun | None, id: str, text: str, who: str, status: str) -> Changes:
        if id in self._asked:
            return Changes.NONE
        block = Block(0, BlockKind.QUESTION, text=text, title=who, status=status)
        if active is None:
            block.id = next(self._ids)
            block.gap = True
            self.screen.blocks.append(block)
        else:
            active.blocks.add(block)
        self._asked[id] = block
        return Changes.TRANSCRIPT

    def _question_closed(self, event: QuestionClosed) -> Changes:
        self.screen.questions.pop(event.id, None)
        block = self._asked.pop(event.id, None)
        if block is None:
            return Changes.QUESTIONS
        block.output = ", ".join(event.answers or ())
        block.status = "done" if event.answers is not None else "interrupted"
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

    def _history(self, event: History, now: float) -> Changes:
        changed = Changes.NONE
        self._is_old = True
        try:
            for raw in event.events:
                try:
                    old = decode_event(raw)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    self._unreadable += 1
                    continue
                if isinstance(old, _OF_HISTORY):
                    changed |= self.apply(old, now)
        finally:
            self._is_old = False
        return changed | self._end_history() if event.last else changed

    def _end_history(self) -> Changes:
        """End the runs that the history left open.

        A workflow may still be running elsewhere.
        """
        changed = Changes.NONE
        for active in [active for active in self._active.values() if active.is_old]:
            run = active.run
            way = f"It may still be running: atomic attach {run.session}" if run.session else ""
            changed |= self._ended(RunEnded(run=run.id, status="interrupted", message=way), run.started)
        if self._unreadable:
            many = "1 entry" if self._unreadable == 1 else f"{self._unreadable:,} entries"
            text = f"{many} of a newer Atomic could not be read."
            changed |= self._notice(ChatNotice(text=text, level=Level.WARNING))
            self._unreadable = 0
        return changed

    # user intents

    def stop(self, run: str, now: float) -> Interrupt | None:
        """Mark a run as stopping, or as forced the second time.

        Return None if it is not active.
        """
        active = self._active.get(run)
        if active is None:
            return None
        if active.run.state is RunState.STOPPING:
            active.run.forced = True
            return Interrupt(run=run, force=True)
        active.run.state = RunState.STOPPING
        active.run.heard = now
        return Interrupt(run=run)

    def stop_foreground(self, now: float) -> Interrupt | None:
        """Stop the user's newest run, or else the newest workflow."""
        ids = [active.run.id for active in self._active.values() if active.graph is None]
        ids = ids or list(self._active)
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
        """Close a question that the user answered or dismissed.

        The engine reports the result.
        """
        return Changes.QUESTIONS if self.screen.questions.pop(id, None) is not None else Changes.NONE

    def close_pick(self) -> Changes:
        """Close the picker."""
        self.screen.pick = None
        return Changes.PICK


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
