"""Turn the agent events of one run into transcript blocks and panel entries.

The blocks of a sub-agent stay together below its head, even if the events of several
agents are interleaved.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from itertools import count

from atomic.chat.protocol import RunKind, status_of
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
from atomic.tui.state.markdown_parts import Piece, Pieces
from atomic.tui.state.model import AgentEntry, Block, BlockKind, Changes, RunEntry, Screen
from atomic.tui.state.tool_calls import Clip, card, clip

_CLOSE_TOGETHER = frozenset({BlockKind.TOOL, BlockKind.SUBAGENT, BlockKind.THINKING, BlockKind.NODE})
_NOTES = frozenset({BlockKind.NOTICE, BlockKind.WARNING})
_DOING = 120  # characters


@dataclass(slots=True)
class Voice:
    """An agent of the run and its open blocks."""

    entry: AgentEntry | None = None
    head: Block | None = None  # None: the agent of the conversation
    open: Block | None = None  # growing answer or thinking
    pieces: Pieces | None = None
    has_said: bool = False
    can_return: bool = False  # an agent of a workflow may have another turn

    @property
    def has_ended(self) -> bool:
        return self.entry is not None and self.entry.ended is not None


@dataclass(slots=True)
class _Tool:
    block: Block
    voice: Voice
    said: Clip = field(default_factory=Clip)


class RunBlocks:
    """Applies the events of one run.

    `live` holds unfinished blocks, which the run's end closes.
    """

    def __init__(self, screen: Screen, run: RunEntry, ids: count[int]) -> None:
        self._screen = screen
        self._run = run
        self._ids = ids
        self._voices: dict[str, Voice] = {}
        self._tools: dict[str, _Tool] = {}  # of active agents, by `_id` of the tool
        self._base = ""  # the workflow agent whose event is being applied
        self._open_usage: dict[str, Usage] = {}  # by agent: usage of its unfinished turn
        self._settled_usage = Usage()  # of finished turns
        self.live: dict[int, Block] = {}
        self._failure: Block | None = None  # the last limit or error of the run's own agent
        self._failure_words = ""

    # events

    def apply(self, event: AgentEvent, now: float, owner: str = "") -> Changes:
        """Apply an event. `owner` is the workflow agent that it belongs to."""
        self._base = owner
        owner = self._id(event.agent)
        match event:
            case TextDelta():
                return self._text(event, owner, now)
            case ThinkingDelta():
                return self._thinking(event, owner, now)
            case ToolOutput():
                return self._tool_output(event)
            case ToolStarted():
                return self._tool_started(event, owner, now)
            case ToolEnded():
                return self._tool_ended(event, now)
            case SubagentStarted():
                return self._subagent_started(event, owner, now)
            case SubagentEnded():
                return self._subagent_ended(event, now)
            case TurnEnded():
                return self._turn_ended(event, owner, now)
            case UsageReported():
                self._open_usage[self._base] = self._open_usage.get(self._base, Usage()) + event.usage
                self._sum_usage()
                return Changes.STATUS
            case PlanChanged():
                if owner:
                    return Changes.NONE
                self._screen.plan = event.items
                return Changes.TASKS
            case LimitReached():
                return self._limit(event, owner)
            case QuestionAsked():  # the engine reports the question separately
                voice = self._voice(owner, now)
                return Changes.NONE if voice is None else self._does(voice, "asks")
            case SkillLoaded():
                return self.note(BlockKind.NOTICE, f"Skill: {event.name}", owner)
            case Compacted():
                is_known = event.before is not None and event.after is not None
                counts = f": {event.before:,} → {event.after:,} tokens" if is_known else ""
                return self.note(BlockKind.NOTICE, f"The context was summarised{counts}.", owner)
            case Notice():
                return self.note(BlockKind.NOTICE, event.text, owner)

    def _id(self, inner: str | None) -> str:
        """Return the id of a sub-agent or a tool, which two workflow agents may share."""
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
        """Add an agent with a head of its own."""
        known = self._voices.get(id)
        if known is not None and not known.has_ended:
            return known
        above = self._voices.get(parent)
        head = Block(0, BlockKind.SUBAGENT, title=name, detail=_first_line(task), text=clip(task), status="running")
        head.started = now
        head.folded = folded
        self.add(head, above)
        self.live[head.id] = head
        entry = AgentEntry(id, name, self._run.id, _first_line(task), started=now, depth=head.depth)
        entry.parent = f"{self._run.id}/{parent}" if above is not None else ""
        self._screen.agents[f"{self._run.id}/{id}"] = entry
        voice = self._voices[id] = Voice(entry, head, can_return=can_return)
        return voice

    def has_voice(self, id: str) -> bool:
        """Return whether this agent is active."""
        voice = self._voices.get(id)
        return voice is not None and not voice.has_ended

    def begin_own(self, name: str, task: str, now: float) -> None:
        """Add the agent of the conversation, which has no head."""
        entry = AgentEntry("", name, self._run.id, _first_line(task), started=now)
        self._screen.agents[f"{self._run.id}/"] = entry
        self._voices[""] = Voice(entry)

    def end_agent(self, id: str, status: str, now: float) -> Changes:
        """End an agent and its open blocks."""
        voice = self._voices.get(id)
        if voice is None:
            return Changes.NONE
        self._close(voice)
        for id_of_tool, tool in list(self._tools.items()):
            if tool.voice is not voice:
                continue
            if tool.block.status == "running":
                self.settle(tool.block, "interrupted", now)
            del self._tools[id_of_tool]  # the next turn of a workflow agent may use the id again
        if voice.entry is not None and voice.entry.ended is None:
            voice.entry.status = status
            voice.entry.ended = now
        if voice.head is not None and voice.head.status == "running":
            self.settle(voice.head, status, now)
        return Changes.TRANSCRIPT | Changes.AGENTS

    def end(self, status: str, now: float) -> None:
        """End everything that is still open in the run."""
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
        """Detach from the blocks after the transcript was cleared.

        New text begins new blocks.
        """
        self.live.clear()
        self._tools.clear()
        self._failure = None
        for voice in self._voices.values():
            voice.open = voice.pieces = None
            voice.head = None

    # blocks

    def add(self, block: Block, voice: Voice | None = None, gap: bool | None = None) -> Block:
        """Insert a block at the end of the transcript or of its sub-agent."""
        blocks = self._screen.blocks
        block.id = next(self._ids)
        block.run = self._run.id
        at = len(blocks)
        if voice is not None and voice.head is not None:
            at = _end_of(blocks, voice.head)
            block.depth = voice.head.depth + 1
            block.hidden = voice.head.folded or voice.head.hidden
        if gap is None and at > 0:
            before = blocks[at - 1]
            kinds = {before.kind, block.kind}
            is_first_inside = before.kind is BlockKind.SUBAGENT and block.depth > before.depth
            gap = not (is_first_inside or kinds <= _CLOSE_TOGETHER or kinds <= _NOTES)
        block.gap = True if gap is None else gap
        blocks.insert(at, block)
        return block

    def note(self, kind: BlockKind, text: str, owner: str = "") -> Changes:
        """Add a complete block."""
        voice = self._voices.get(owner)
        if voice is not None:
            self._close(voice)
        self.add(Block(0, kind, text=clip(text)), voice)
        return Changes.TRANSCRIPT

    def fail(self, kind: BlockKind, message: str, words: str = "") -> Changes:
        """Show a failure of the run's own agent once.

        A later report of the same failure replaces the earlier one: it contains the
        same `words`, or nothing came in between.
        """
        if (voice := self._voices.get("")) is not None:
            self._close(voice)
        shown = self._failure
        if shown is not None and (self._failure_words in message or shown is self._screen.blocks[-1]):
            shown.kind = kind
            shown.text = clip(message)
            shown.version += 1
        else:
            self._failure = self.add(Block(0, kind, text=clip(message)))
        self._failure_words = words or message
        return Changes.TRANSCRIPT

    def settle(self, block: Block, status: str, now: float, seconds: float | None = None) -> None:
        block.status = status
        block.open = False
        block.seconds = max(0.0, now - block.started) if seconds is None else seconds
        block.version += 1
        self.live.pop(block.id, None)

    # text

    def _text(self, event: TextDelta, owner: str, now: float) -> Changes:
        voice = self._voice(owner, now)
        if voice is None:
            return Changes.NONE
        changed = Changes.TRANSCRIPT
        if voice.pieces is None:
            self._close(voice)
            changed |= self._does(voice, "writing")
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
        voice = self._voice(owner, now)
        changed = Changes.TRANSCRIPT
        if voice is None:
            return Changes.NONE
        open = voice.open
        if open is None or open.kind is not BlockKind.THINKING:
            self._close(voice)
            changed |= self._does(voice, "thinking")
            open = voice.open = self.add(Block(0, BlockKind.THINKING, open=True, started=now), voice)
            self.live[open.id] = open
        open.text += event.text
        open.seconds = max(0.0, now - open.started)
        open.version += 1
        return changed

    def _close(self, voice: Voice) -> None:
        """Close the open text of an agent."""
        for piece in voice.pieces.flush() if voice.pieces is not None else ():
            self._answer(voice, piece)
        if voice.open is not None:
            self._shut(voice.open)
        voice.open = voice.pieces = None

    def _shut(self, block: Block) -> None:
        block.open = False
        block.version += 1
        self.live.pop(block.id, None)

    # tools

    def _tool_started(self, event: ToolStarted, owner: str, now: float) -> Changes:
        id = self._id(event.id)
        if id in self._tools:
            return Changes.NONE
        voice = self._voice(owner, now)
        if voice is None:
            return Changes.NONE
        self._close(voice)
        title, detail, input = card(event.name, event.input)
        block = Block(0, BlockKind.TOOL, title=title, detail=detail, input=input, status="running", started=now)
        self.add(block, voice)
        self.live[block.id] = block
        self._tools[id] = _Tool(block, voice)
        if voice.entry is not None:
            voice.entry.tools += 1
            if voice.head is not None:
                voice.head.input = "1 tool" if voice.entry.tools == 1 else f"{voice.entry.tools} tools"
                voice.head.version += 1
        self._does(voice, f"{title} {detail}".strip())
        return Changes.TRANSCRIPT | Changes.AGENTS

    def _tool_output(self, event: ToolOutput) -> Changes:
        tool = self._tools.get(self._id(event.id))
        if tool is None or tool.block.status != "running":
            return Changes.NONE
        tool.said.add(event.text)
        tool.block.output = tool.said.text()
        tool.block.version += 1
        return Changes.TRANSCRIPT

    def _tool_ended(self, event: ToolEnded, now: float) -> Changes:
        tool = self._tools.get(self._id(event.id))
        if tool is None or tool.block.status != "running":
            return Changes.NONE
        said = clip(event.output) or tool.block.output
        if event.error is not None and event.error not in said:
            said = f"{said.rstrip()}\n{clip(event.error)}".lstrip("\n")
        tool.block.output = said
        tool.said = Clip()
        self.settle(tool.block, "done" if event.error is None else "failed", now)
        return Changes.TRANSCRIPT

    # sub-agents

    def _subagent_started(self, event: SubagentStarted, owner: str, now: float) -> Changes:
        id = self._id(event.id)
        parent = None if id in self._voices else self._voice(owner, now)
        if parent is None:
            return Changes.NONE
        self._close(parent)
        self._does(parent, f"{event.name} {_first_line(event.task)}".strip())
        self.begin(id, event.name, event.task, now, parent=owner, folded=self._run.kind is not RunKind.AGENTS)
        return Changes.TRANSCRIPT | Changes.AGENTS

    def _subagent_ended(self, event: SubagentEnded, now: float) -> Changes:
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
        """Return the agent of an event, or None if it has ended.

        Adds unannounced agents.
        """
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
        return self.begin(owner, name, "", now, parent=self._base, folded=self._run.kind is not RunKind.AGENTS)

    def _does(self, voice: Voice, doing: str) -> Changes:
        doing = doing[:_DOING]
        if voice.entry is None or voice.entry.doing == doing:
            return Changes.NONE
        voice.entry.doing = doing
        if voice.head is not None:
            voice.head.output = doing
            voice.head.version += 1
        return Changes.AGENTS

    def _whole(self, voice: Voice, text: str) -> None:
        """Add a complete text."""
        voice.pieces = Pieces()
        for piece in voice.pieces.feed(text):
            self._answer(voice, piece)
        self._close(voice)

    # other events

    def _sum_usage(self) -> None:
        self._run.usage = sum(self._open_usage.values(), self._settled_usage)

    def _limit(self, event: LimitReached, owner: str) -> Changes:
        if event.message and event.reset_at is None:
            text = event.message
        else:
            text = f"{event.message} {rate_limited(event.reset_at)}".lstrip()
        if owner:
            return self.note(BlockKind.WARNING, text)  # not below a sub-agent's head, which may be folded
        return self.fail(BlockKind.WARNING, text, event.message)

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
        return self.end_agent(owner, status_of(event.reason), now) | Changes.STATUS


def _end_of(blocks: list[Block], head: Block) -> int:
    """Return the index after the last block of a head. Searches from the end."""
    at = len(blocks) - 1
    while at >= 0 and blocks[at] is not head:
        at -= 1
    if at < 0:
        return len(blocks)
    at += 1
    while at < len(blocks) and blocks[at].depth > head.depth:
        at += 1
    return at


def rate_limited(reset_at: datetime | None) -> str:
    """Return a sentence about a usage limit of an agent, with its end in local time."""
    until = "" if reset_at is None else f" until {reset_at.astimezone():%a %H:%M}"
    return f"The agent is rate-limited{until}."


def _first_line(text: str) -> str:
    stripped = text.strip()
    return stripped.partition("\n")[0][:200]
