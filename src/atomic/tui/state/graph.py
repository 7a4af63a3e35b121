"""Apply a workflow's events to the state: nodes, agents, tasks and end."""

from __future__ import annotations

from datetime import datetime

from atomic.base.step_names import without_items
from atomic.providers.events import SkillLoaded, SubagentStarted, TextDelta, ThinkingDelta, ToolStarted
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
from atomic.tui.state.model import Block, BlockKind, Changes, NodeEntry, RunEntry, Screen
from atomic.tui.state.run_blocks import RunBlocks, rate_limited
from atomic.tui.state.tool_calls import clip

_WORK = (TextDelta, ThinkingDelta, ToolStarted, SubagentStarted, SkillLoaded)
_WORDS = {"max_cost": "The cost limit", "max_tokens": "The token limit", "max_time": "The time limit"}


_INTERRUPTED = ("cancelled", "paused", "waiting", "interrupted")
_ENDS = {
    "paused": "waiting",
    "waiting": "waiting",
    "interrupted": "waiting",
    "done": "completed",
    "completed": "completed",
}


class Graph:
    """Applies the events of one workflow."""

    def __init__(self, screen: Screen, run: RunEntry, blocks: RunBlocks) -> None:
        self._screen = screen
        self._run = run
        self._blocks = blocks
        self._steps: dict[str, tuple[str, Block | None]] = {}  # running: the node, and its block if announced
        self._of_node: dict[str, set[str]] = {}  # agents that a node has called

    def apply(self, event: WorkflowEvent, now: float) -> Changes:
        """Apply an event."""
        match event:
            case AgentActivity():
                return self._activity(event, now)
            case NodeStarted():
                return self._node_started(event, now)
            case NodeEnded():
                return self._node_ended(event, now)
            case TasksChanged():
                self._screen.tasks = tuple(event.tasks)
                return Changes.TASKS
            case Warning():
                return self._blocks.note(BlockKind.NOTICE if event.notice else BlockKind.WARNING, event.text)
            case LimitReached():
                return self._blocks.note(BlockKind.WARNING, _limit(event))
            case RunStarted():
                self._run.title = self._run.title or event.workflow
                if event.resumed:
                    return self._blocks.note(BlockKind.NOTICE, "The run continues.") | Changes.GRAPH
                return Changes.GRAPH
            case QuestionAsked() | RunEnded():  # the engine reports these separately, with their end
                return Changes.NONE

    def forget(self) -> None:
        """Detach from the blocks after the transcript was cleared."""
        self._steps = {step: (node, None) for step, (node, _) in self._steps.items()}

    def end(self, status: str) -> None:
        """End all active nodes."""
        for node in self._run.nodes.values():
            if node.status == "active":
                node.status = _ENDS.get(status, "failed")
        self._steps.clear()

    def _node_started(self, event: NodeStarted, now: float) -> Changes:
        if event.step_id in self._steps:
            return Changes.NONE
        place = without_items(event.node)
        node = self._run.nodes.setdefault(place, NodeEntry(place))
        node.status = "active"
        if event.attempt <= 1 or not node.times:
            node.times += 1
        self._steps[event.step_id] = event.node, None
        if not event.description:
            return Changes.GRAPH
        block = Block(0, BlockKind.NODE, title=place, text=event.description, status="running", started=now)
        block.detail = f"iteration {node.times}" if node.times > 1 else ""
        self._steps[event.step_id] = event.node, self._blocks.add(block)
        self._blocks.live[block.id] = block
        return Changes.GRAPH | Changes.TRANSCRIPT

    def _node_ended(self, event: NodeEnded, now: float) -> Changes:
        if event.step_id not in self._steps:
            return Changes.NONE
        _, block = self._steps.pop(event.step_id)
        place = without_items(event.node)
        status = event.status  # of the block and the agents
        if status == "completed":
            status = "done"
        elif status in _INTERRUPTED:
            status = "interrupted"
        changed = Changes.GRAPH
        active = [node for node, _ in self._steps.values()]  # a node can be active several times at once
        if place not in map(without_items, active):
            node = self._run.nodes.setdefault(place, NodeEntry(place))
            node.status = "resting" if status == "interrupted" else event.status
        if event.node not in active:
            for agent in self._of_node.pop(event.node, ()):
                changed |= self._blocks.end_agent(agent, status, now)
        if block is None and event.error:
            block = self._blocks.add(Block(0, BlockKind.NODE, title=place, text=event.description, started=now))
        if block is None:
            return changed
        block.output = clip(event.error or "")
        self._blocks.settle(block, status, now, event.seconds)
        return changed | Changes.TRANSCRIPT

    def _activity(self, event: AgentActivity, now: float) -> Changes:
        owner = "·".join(part for part in (event.node, event.task, event.role) if part)
        changed = Changes.NONE
        if not self._blocks.has_voice(owner):
            if not isinstance(event.event, _WORK):
                return self._blocks.apply(event.event, now, owner)
            name = event.role or without_items(event.node)
            title = next((f" {task.title}" for task in self._screen.tasks if task.id == event.task), "")
            task = f"#{event.task}{title}" if event.task else ""
            self._blocks.begin(owner, name, task, now, can_return=True)
            changed = Changes.AGENTS
        self._of_node.setdefault(event.node, set()).add(owner)
        return changed | self._blocks.apply(event.event, now, owner)


def _limit(event: LimitReached) -> str:
    if event.kind == "provider":
        reset = None if event.reset_at is None else datetime.fromtimestamp(event.reset_at).astimezone()
        return f"{rate_limited(reset)} The run waits or pauses."
    spent = f" ({event.spent:g} of {event.limit:g})" if event.spent is not None and event.limit is not None else ""
    return f"{_WORDS.get(event.kind, event.kind)} is reached{spent}."
