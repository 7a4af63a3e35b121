"""What the agents of one run do, told as blocks of the transcript and entries of the agents' panel.

The blocks of a sub-agent stand together below its head, however mixed the events of several come in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar

from atomic.providers.events import (
    AgentEvent,
    Compacted,
    EndReason,
    LimitReached,
    Notice,
    PlanChanged,
    QuestionAsked,
    SkillLoaded,
    SubagentEnded,
    SubagentStarted,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    Usage,
    UsageReported,
)
from atomic.tui.protocol import RunKind
from atomic.tui.state.cards import card
from atomic.tui.state.changes import Changes
from atomic.tui.state.clip import Clip, clip
from atomic.tui.state.model import AgentEntry, Block, BlockKind, Run, Screen
from atomic.tui.state.pieces import Piece, Pieces

_CLOSE_TOGETHER = frozenset({BlockKind.TOOL, BlockKind.SUBAGENT, BlockKind.THINKING, BlockKind.NODE})
_NOTES = frozenset({BlockKind.NOTICE, BlockKind.WARNING})
_DOING = 120  # characters


@dataclass(slots=True)
class Voice:
    """An agent of the run: what it is saying, and where."""

    entry: AgentEntry | None = None
    head: Block | None = None  # None: the agent of the conversation
    open: Block | None = None  # answer or thinking that grows
    pieces: Pieces | None = None
    has_said: bool = False
    can_return: bool = False  # of a workflow: after its turn it may have another one

    @property
    def has_ended(self) -> bool:
        return self.entry is not None and self.entry.ended is not None


@dataclass(slots=True)
class _Tool:
    block: Block
    voice: Voice
    said: Clip = field(default_factory=Clip)


class Story:
    """The fold of one run's events. All that is still going on is in `live`, so that its end can end it."""

    def __init__(self, screen: Screen, run: Run, ids: count[int]) -> None:
        self._screen, self._run, self._ids = screen, run, ids
        self._voices: dict[str, Voice] = {}
        self._tools: dict[str, _Tool] = {}
        self._base = ""  # whose event is being told: an agent of a workflow
        self._open_usage: dict[str, Usage] = {}  # by agent: what its turn has reported so far
        self._settled_usage = Usage()  # of the turns that have ended
        self.live: dict[int, Block] = {}
        self._failure: Block | None = None  # the last limit or error of the run's own agent
        self._failure_words = ""

    # what happens ------------------------------------------------------------------------------------------------

    def tell(self, event: AgentEvent, now: float, owner: str = "") -> Changes:
        """Take an event; `owner` is the agent of a workflow that it belongs to."""
        self._base = owner
        return self._FOLDS[type(event)](self, event, self._id(event.agent), now)

    def _id(self, inner: str | None) -> str:
        if not inner:
            return self._base
        return f"{self._base}/{inner}" if self._base else inner

    def begin(
        self,
        id: str,
        name: str,
        task: str,
        now: float,
        *,
        parent: str = "",
        folded: bool = True,
        can_return: bool = False,
    ) -> Voice:
        """An agent with a head of its own begins."""
        known = self._voices.get(id)
        if known is not None and not known.has_ended:
            return known
        above = self._voices.get(parent)
        head = Block(0, BlockKind.SUBAGENT, title=name, detail=_first_line(task), text=clip(task), status="running")
        head.started, head.folded = now, folded
        self.add(head, above)
        self.live[head.id] = head
        entry = AgentEntry(id, name, self._run.id, _first_line(task), started=now, depth=head.depth)
        entry.parent = f"{self._run.id}/{parent}" if above is not None else ""
        self._screen.agents[f"{self._run.id}/{id}"] = entry
        voice = self._voices[id] = Voice(entry, head, can_return=can_return)
        return voice

    def has_voice(self, id: str) -> bool:
        """Whether this agent is at work."""
        voice = self._voices.get(id)
        return voice is not None and not voice.has_ended

    def begin_own(self, name: str, task: str, now: float) -> None:
        """The agent of the conversation begins: it needs no head."""
        entry = AgentEntry("", name, self._run.id, _first_line(task), started=now)
        self._screen.agents[f"{self._run.id}/"] = entry
        self._voices[""] = Voice(entry)

    def end_agent(self, id: str, status: str, now: float) -> Changes:
        """An agent is over, and what it had open."""
        voice = self._voices.get(id)
        if voice is None:
            return Changes.NONE
        self._close(voice)
        self._end_tools(voice, now)
        if voice.entry is not None and voice.entry.ended is None:
            voice.entry.status, voice.entry.ended = status, now
        if voice.head is not None and voice.head.status == "running":
            self.settle(voice.head, status, now)
        return Changes.TRANSCRIPT | Changes.AGENTS

    def end(self, status: str, now: float) -> None:
        """The run is over: nothing of it goes on."""
        for id in list(self._voices):
            self.end_agent(id, status, now)
        for block in list(self.live.values()):
            block.open = False
            if block.status in {"running", "waiting"}:
                block.status = "interrupted" if block.kind in {BlockKind.TOOL, BlockKind.QUESTION} else status
            if block.seconds is None and block.started:
                block.seconds = max(0.0, now - block.started)
            block.version += 1
        self.live.clear()
        self._tools.clear()

    def forget(self) -> None:
        """The transcript was emptied: what goes on begins new blocks."""
        self.live.clear()
        self._tools.clear()
        self._failure = None
        for voice in self._voices.values():
            voice.open = voice.pieces = None
            voice.head = None

    # blocks ------------------------------------------------------------------------------------------------------

    def add(self, block: Block, voice: Voice | None = None, gap: bool | None = None) -> Block:
        """Put a block where it belongs: to the end, or to the end of its sub-agent."""
        blocks = self._screen.blocks
        block.id, block.run = next(self._ids), self._run.id
        at = len(blocks)
        if voice is not None and voice.head is not None:
            at = _end_of(blocks, voice.head)
            block.depth = voice.head.depth + 1
            block.hidden = voice.head.folded or voice.head.hidden
        block.gap = (_needs_gap(blocks[at - 1], block) if at else True) if gap is None else gap
        blocks.insert(at, block)
        return block

    def note(self, kind: BlockKind, text: str, owner: str = "") -> Changes:
        """Say something in one block that is complete."""
        voice = self._voices.get(owner)
        if voice is not None:
            self._close(voice)
        self.add(Block(0, kind, text=clip(text)), voice)
        return Changes.TRANSCRIPT

    def fail(self, kind: BlockKind, message: str, words: str = "") -> Changes:
        """Show a failure of the run's own agent once.

        A later report of the same failure (it holds the same `words`, or nothing came in between) replaces the
        earlier one.
        """
        if (voice := self._voices.get("")) is not None:
            self._close(voice)
        shown = self._failure
        if shown is not None and (self._failure_words in message or shown is self._screen.blocks[-1]):
            shown.kind, shown.text = kind, clip(message)
            shown.version += 1
        else:
            self._failure = self.add(Block(0, kind, text=clip(message)))
        self._failure_words = words or message
        return Changes.TRANSCRIPT

    def settle(self, block: Block, status: str, now: float, seconds: float | None = None) -> None:
        block.status, block.open = status, False
        block.seconds = max(0.0, now - block.started) if seconds is None else seconds
        block.version += 1
        self.live.pop(block.id, None)

    # text --------------------------------------------------------------------------------------------------------

    def _text(self, event: TextDelta, owner: str, now: float) -> Changes:
        voice = self._voice(owner, now)
        if voice is None:
            return Changes.NONE
        changed = Changes.TRANSCRIPT
        if voice.pieces is None:
            changed |= self._turn_to(voice, "writing")
            voice.pieces = Pieces()
        for piece in voice.pieces.feed(event.text):
            self._answer(voice, piece)
        return changed

    def _answer(self, voice: Voice, piece: Piece) -> None:
        open = voice.open
        if open is not None and not piece.begins:
            open.text += piece.text
            open.version += 1
            return
        if open is not None:
            self._shut(open)
        block = Block(0, BlockKind.ANSWER, text=piece.text, open=True, lead=open is None)
        voice.open = self.add(block, voice, gap=None if open is None else piece.gap)
        voice.has_said = True
        self.live[block.id] = block

    def _thinking(self, event: ThinkingDelta, owner: str, now: float) -> Changes:
        voice, changed = self._voice(owner, now), Changes.TRANSCRIPT
        if voice is None:
            return Changes.NONE
        open = voice.open
        if open is None or open.kind is not BlockKind.THINKING:
            changed |= self._turn_to(voice, "thinking")
            open = voice.open = self.add(Block(0, BlockKind.THINKING, open=True, started=now), voice)
            self.live[open.id] = open
        open.text += event.text
        open.seconds = max(0.0, now - open.started)
        open.version += 1
        return changed

    def _turn_to(self, voice: Voice, doing: str) -> Changes:
        self._close(voice)
        return self._does(voice, doing)

    def _close(self, voice: Voice) -> None:
        """What this agent was saying is complete."""
        for piece in voice.pieces.flush() if voice.pieces is not None else ():
            self._answer(voice, piece)
        if voice.open is not None:
            self._shut(voice.open)
        voice.open = voice.pieces = None

    def _shut(self, block: Block) -> None:
        block.open = False
        block.version += 1
        self.live.pop(block.id, None)

    # tools -------------------------------------------------------------------------------------------------------

    def _tool_started(self, event: ToolStarted, owner: str, now: float) -> Changes:
        if event.id in self._tools:
            return Changes.NONE
        voice = self._voice(owner, now)
        if voice is None:
            return Changes.NONE
        self._close(voice)
        title, detail, input = card(event.name, event.input)
        block = Block(0, BlockKind.TOOL, title=title, detail=detail, input=input, status="running", started=now)
        self.add(block, voice)
        self.live[block.id] = block
        self._tools[event.id] = _Tool(block, voice)
        if voice.entry is not None:
            voice.entry.tools += 1
            if voice.head is not None:
                voice.head.input = "1 tool" if voice.entry.tools == 1 else f"{voice.entry.tools} tools"
                voice.head.version += 1
        self._does(voice, f"{title} {detail}".strip())
        return Changes.TRANSCRIPT | Changes.AGENTS

    def _tool_output(self, event: ToolOutput, owner: str, now: float) -> Changes:
        tool = self._tools.get(event.id)
        if tool is None or tool.block.status != "running":
            return Changes.NONE
        tool.said.add(event.text)
        tool.block.output = tool.said.text()
        tool.block.version += 1
        return Changes.TRANSCRIPT

    def _tool_ended(self, event: ToolEnded, owner: str, now: float) -> Changes:
        tool = self._tools.get(event.id)
        if tool is None or tool.block.status != "running":
            return Changes.NONE
        said = clip(event.output) or tool.block.output
        if event.error is not None and event.error not in said:
            said = f"{said.rstrip()}\n{clip(event.error)}".lstrip("\n")
        tool.block.output = said
        tool.said = Clip()
        self.settle(tool.block, "done" if event.error is None else "failed", now)
        return Changes.TRANSCRIPT

    def _end_tools(self, voice: Voice, now: float) -> None:
        for tool in self._tools.values():
            if tool.voice is voice and tool.block.status == "running":
                self.settle(tool.block, "interrupted", now)

    # sub-agents --------------------------------------------------------------------------------------------------

    def _subagent_started(self, event: SubagentStarted, owner: str, now: float) -> Changes:
        id = self._id(event.id)
        parent = None if id in self._voices else self._voice(owner, now)
        if parent is None:
            return Changes.NONE
        self._close(parent)
        self._does(parent, f"{event.name} {_first_line(event.task)}".strip())
        self.begin(id, event.name, event.task, now, parent=owner, folded=self._run.kind is not RunKind.CREW)
        return Changes.TRANSCRIPT | Changes.AGENTS

    def _subagent_ended(self, event: SubagentEnded, owner: str, now: float) -> Changes:
        id = self._id(event.id)
        voice = self._voices.get(id)
        if voice is None or voice.has_ended:
            return Changes.NONE
        self._close(voice)
        if event.text and not voice.has_said:
            self._whole(voice, event.text)
        if event.error:
            self.add(Block(0, BlockKind.ERROR, text=clip(event.error)), voice)
            if voice.head is not None:
                voice.head.output = _first_line(event.error)
        return self.end_agent(id, "failed" if event.error else "done", now)

    def _voice(self, owner: str, now: float) -> Voice | None:
        """Who speaks; one that was never announced is announced now. None: it has ended, what it says comes late."""
        voice = self._voices.get(owner)
        if voice is not None and not voice.has_ended:
            return voice
        if voice is not None and not (voice.entry is not None and voice.can_return):
            return None
        if voice is not None and voice.entry is not None:
            return self.begin(owner, voice.entry.name, voice.entry.task, now, can_return=True)
        if owner == self._base:
            voice = self._voices[owner] = Voice()
            return voice
        name = owner[len(self._base) :].lstrip("/")
        return self.begin(owner, name, "", now, parent=self._base, folded=self._run.kind is not RunKind.CREW)

    def _does(self, voice: Voice, doing: str) -> Changes:
        if voice.entry is None or voice.entry.doing == doing:
            return Changes.NONE
        voice.entry.doing = doing[:_DOING]
        if voice.head is not None:
            voice.head.output = voice.entry.doing
            voice.head.version += 1
        return Changes.AGENTS

    def _whole(self, voice: Voice, text: str) -> None:
        """A text that came at once."""
        voice.pieces = Pieces()
        for piece in voice.pieces.feed(text):
            self._answer(voice, piece)
        self._close(voice)

    # the rest ----------------------------------------------------------------------------------------------------

    def _skill(self, event: SkillLoaded, owner: str, now: float) -> Changes:
        return self.note(BlockKind.NOTICE, f"Skill: {event.name}", owner)

    def _plan(self, event: PlanChanged, owner: str, now: float) -> Changes:
        if owner:
            return Changes.NONE
        self._screen.plan = event.items
        return Changes.TASKS

    def _compacted(self, event: Compacted, owner: str, now: float) -> Changes:
        if event.before is None or event.after is None:
            return self.note(BlockKind.NOTICE, "The context was summarised.", owner)
        return self.note(
            BlockKind.NOTICE, f"The context was summarised: {event.before:,} → {event.after:,} tokens.", owner
        )

    def _usage(self, event: UsageReported, owner: str, now: float) -> Changes:
        self._open_usage[self._base] = self._open_usage.get(self._base, Usage()) + event.usage
        return self._sum_usage()

    def _sum_usage(self) -> Changes:
        self._run.usage = sum(self._open_usage.values(), self._settled_usage)
        return Changes.STATUS

    def _limit(self, event: LimitReached, owner: str, now: float) -> Changes:
        until = f" It serves again at {event.reset_at:%H:%M}." if event.reset_at else ""
        text = f"{event.message or 'The provider does not serve now.'}{until}"
        if owner:
            return self.note(BlockKind.WARNING, text)  # not below a sub-agent's head, which may be folded
        return self.fail(BlockKind.WARNING, text, event.message)

    def _notice(self, event: Notice, owner: str, now: float) -> Changes:
        return self.note(BlockKind.NOTICE, event.text, owner)

    def _asked(self, event: QuestionAsked, owner: str, now: float) -> Changes:
        voice = self._voice(owner, now)
        return (
            Changes.NONE if voice is None else self._does(voice, "asks")
        )  # the question itself comes as news of its own

    def _turn_ended(self, event: TurnEnded, owner: str, now: float) -> Changes:
        voice = self._voices.get(owner)
        if voice is None or voice.has_ended:
            return Changes.NONE
        self._close(voice)
        if event.text and not voice.has_said:
            self._whole(voice, event.text)
        if event.error and event.reason is not EndReason.INTERRUPTED:
            if owner:
                self.add(Block(0, BlockKind.ERROR, text=clip(event.error)), voice)
            else:
                self.fail(BlockKind.ERROR, event.error)
        reported = self._open_usage.pop(self._base, Usage())
        self._settled_usage += reported if event.usage == Usage() else event.usage
        self._sum_usage()
        return self.end_agent(owner, _STATUS.get(event.reason, "failed"), now) | Changes.STATUS

    _FOLDS: ClassVar[dict[type[AgentEvent], Callable[[Any, Any, str, float], Changes]]] = {
        TextDelta: _text,
        ThinkingDelta: _thinking,
        ToolStarted: _tool_started,
        ToolOutput: _tool_output,
        ToolEnded: _tool_ended,
        SubagentStarted: _subagent_started,
        SubagentEnded: _subagent_ended,
        SkillLoaded: _skill,
        QuestionAsked: _asked,
        PlanChanged: _plan,
        Compacted: _compacted,
        UsageReported: _usage,
        LimitReached: _limit,
        Notice: _notice,
        TurnEnded: _turn_ended,
    }


_STATUS = {EndReason.DONE: "done", EndReason.INTERRUPTED: "interrupted", EndReason.LIMIT: "limit"}


def _end_of(blocks: list[Block], head: Block) -> int:
    """Behind the last block of a head; looked for from the end, where those at work are."""
    at = len(blocks) - 1
    while at >= 0 and blocks[at] is not head:
        at -= 1
    if at < 0:
        return len(blocks)
    at += 1
    while at < len(blocks) and blocks[at].depth > head.depth:
        at += 1
    return at


def _needs_gap(before: Block, block: Block) -> bool:
    if before.kind is BlockKind.SUBAGENT and block.depth > before.depth:
        return False
    return not any({before.kind, block.kind} <= group for group in (_CLOSE_TOGETHER, _NOTES))


def _first_line(text: str) -> str:
    stripped = text.strip()
    return stripped.partition("\n")[0][:200]
