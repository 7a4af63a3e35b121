"""Events in any order, repeated or missing: Esc stops, and no part outlives its run."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from atomic.chat.protocol import (
    Activity,
    ChatEvent,
    ChatNotice,
    Cleared,
    Interrupt,
    QuestionClosed,
    QuestionOpened,
    RunEnded,
    RunKind,
    RunStarted,
    ShellOutput,
    WorkflowActivity,
)
from atomic.providers.events import (
    AgentEvent,
    EndReason,
    Notice,
    QuestionAsked,
    SubagentEnded,
    SubagentStarted,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolOutput,
    ToolStarted,
    TurnEnded,
)
from atomic.questions import Question
from atomic.runs import events as wf
from atomic.tui.state.model import Block, BlockKind, RunState
from atomic.tui.state.store import Store

RUNS = st.sampled_from(["r1", "r2", "r3", "r4"])
AGENTS = st.sampled_from([None, None, "a", "b", "c"])
IDS = st.sampled_from(["a", "b", "c"])
TEXTS = st.sampled_from(["x", "word ", "\n\n", "```\n", "- item\n", "# H\n", ""])
STATUSES = st.sampled_from(["done", "failed", "interrupted", "limit", "paused", "completed"])
EVENTS: st.SearchStrategy[AgentEvent] = st.one_of(
    st.builds(TextDelta, TEXTS, AGENTS),
    st.builds(ThinkingDelta, TEXTS, AGENTS),
    st.builds(ToolStarted, IDS, st.just("Bash"), st.just({"command": "ls"}), AGENTS),
    st.builds(ToolOutput, IDS, TEXTS, AGENTS),
    st.builds(ToolEnded, IDS, TEXTS, st.sampled_from([None, "boom"]), AGENTS),
    st.builds(SubagentStarted, IDS, st.just("worker"), st.just("task"), AGENTS),
    st.builds(SubagentEnded, IDS, TEXTS, st.sampled_from([None, "boom"]), AGENTS),
    st.builds(Notice, st.just("note"), AGENTS),
    st.builds(QuestionAsked, st.just((Question("?"),)), AGENTS),
    st.builds(TurnEnded, st.sampled_from(list(EndReason)), TEXTS, agent=AGENTS),
)
NODES = st.sampled_from(["n1", "n2"])
STEPS = st.sampled_from(["1", "2", "3"])
FRAME: dict[str, Any] = {"run": st.just("s"), "seq": st.just(1), "time": st.just(1.0)}
WORKFLOW: st.SearchStrategy[wf.WorkflowEvent] = st.one_of(
    st.builds(wf.NodeStarted, node=NODES, step_id=STEPS, attempt=st.just(1), description=TEXTS, **FRAME),
    st.builds(wf.NodeEnded, node=NODES, step_id=STEPS, attempt=st.just(1), status=STATUSES, **FRAME),
    st.builds(wf.AgentActivity, node=NODES, task=AGENTS, role=AGENTS, event=EVENTS, **FRAME),
    st.builds(wf.QuestionAsked, question=st.builds(Question, st.just("?"), id=IDS), node=NODES, **FRAME),
)


class Screens(RuleBasedStateMachine):
    """Several runs at once, with events in any order."""

    applied: Bundle[ChatEvent] = Bundle("applied")

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.now = 0.0

    def apply(self, event: ChatEvent) -> ChatEvent:
        self.now += 0.05
        self.store.apply(event, self.now)
        return event

    @initialize(target=applied)
    def begin_one(self) -> ChatEvent:
        return self.apply(RunStarted(run="r1", kind=RunKind.TURN, prompt="hi"))

    @rule(target=applied, run=RUNS, kind=st.sampled_from(list(RunKind)))
    def begin(self, run: str, kind: RunKind) -> ChatEvent:
        return self.apply(RunStarted(run=run, kind=kind, prompt="go", title="t"))

    @rule(run=RUNS, kind=st.sampled_from(list(RunKind)))
    def send(self, run: str, kind: RunKind) -> None:
        self.store.begin(run, kind, "go", self.now)

    @rule(target=applied, run=RUNS, event=EVENTS)
    def act(self, run: str, event: AgentEvent) -> ChatEvent:
        return self.apply(Activity(run=run, event=event))

    @rule(target=applied, run=RUNS, event=WORKFLOW)
    def work(self, run: str, event: wf.WorkflowEvent) -> ChatEvent:
        return self.apply(WorkflowActivity(run=run, event=event))

    @rule(target=applied, run=RUNS, text=TEXTS)
    def shell(self, run: str, text: str) -> ChatEvent:
        return self.apply(ShellOutput(run=run, text=text))

    @rule(target=applied, run=RUNS, id=IDS)
    def ask(self, run: str, id: str) -> ChatEvent:
        return self.apply(QuestionOpened(id=id, run=run, question=Question("?", id=id)))

    @rule(target=applied, id=IDS, answers=st.sampled_from([None, ("yes",)]))
    def answer(self, id: str, answers: tuple[str, ...] | None) -> ChatEvent:
        self.store.close_question(id)
        return self.apply(QuestionClosed(id=id, answers=answers))

    @rule(target=applied, run=RUNS, status=STATUSES)
    def end(self, run: str, status: str) -> ChatEvent:
        return self.apply(RunEnded(run=run, status=status, message="so it is", resume="again"))

    @rule(event=applied)
    def repeat(self, event: ChatEvent) -> None:
        self.apply(event)

    @rule()
    def clear(self) -> None:
        self.apply(Cleared())

    @rule()
    def show_notice(self) -> None:
        self.apply(ChatNotice(text="x", run="r1"))

    @precondition(lambda self: bool(self.store.screen.blocks))
    @rule(data=st.data())
    def fold(self, data: st.DataObject) -> None:
        blocks = self.store.screen.blocks
        self.store.toggle(blocks[data.draw(st.integers(0, len(blocks) - 1))].id)

    @rule(run=RUNS)
    def stop(self, run: str) -> None:
        known = self.store.screen.runs.get(run)
        before = known.state if known else RunState.ENDED
        intent = self.store.stop(run, self.now)
        if known is None or before is RunState.ENDED:
            assert intent is None
            return
        assert known.state is RunState.STOPPING
        assert intent == Interrupt(run=run, force=before is RunState.STOPPING)

    @rule()
    def stop_foreground(self) -> None:
        was_busy = self.store.screen.is_busy
        intent = self.store.stop_foreground(self.now)
        assert (intent is not None) == was_busy
        if intent is not None:
            assert self.store.screen.runs[intent.run].state is RunState.STOPPING
            again = self.store.stop_foreground(self.now)
            assert again == Interrupt(run=intent.run, force=True)

    @invariant()
    def ended_runs_have_no_live_parts(self) -> None:
        screen = self.store.screen
        active = {id for id, run in screen.runs.items() if run.is_active}
        assert screen.is_busy == bool(active)
        for block in screen.blocks:
            assert not is_live(block) or block.run in active, block
        for agent in screen.agents.values():
            assert agent.ended is not None or agent.run in active, agent
        assert {question.run for question in screen.questions.values()} <= active
        for run in screen.runs.values():
            assert run.is_active or all(node.status != "active" for node in run.nodes.values())

    @invariant()
    def tree_is_consistent(self) -> None:
        blocks = self.store.screen.blocks
        assert len({block.id for block in blocks}) == len(blocks)
        above: list[Block] = []
        for block in blocks:
            while above and above[-1].depth >= block.depth:
                above.pop()
            assert len(above) == block.depth
            assert block.hidden == any(head.folded for head in above)
            if block.kind is BlockKind.SUBAGENT:
                above.append(block)

    def teardown(self) -> None:
        for run in list(self.store.screen.runs):
            self.apply(RunEnded(run=run, status="done"))
        screen = self.store.screen
        assert not screen.is_busy
        assert not screen.questions
        assert not any(map(is_live, screen.blocks))


def is_live(block: Block) -> bool:
    return block.open or block.status in {"running", "waiting"}


TestScreens = Screens.TestCase
TestScreens.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
