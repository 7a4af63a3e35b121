"""Chat events become the state of the screen."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from atomic.chat.protocol import (
    Activity,
    ChatEvent,
    ChatNotice,
    Cleared,
    GraphDrawn,
    History,
    Interrupt,
    Level,
    QuestionClosed,
    QuestionOpened,
    RunEnded,
    RunKind,
    RunStarted,
    ShellOutput,
    StatusChanged,
    WorkflowActivity,
    encode,
)
from atomic.providers.events import (
    AgentEvent,
    EndReason,
    LimitReached,
    PlanChanged,
    PlanItem,
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
from atomic.questions import Question
from atomic.runs import events as wf
from atomic.tasks import Task
from atomic.tui.state.model import Block, BlockKind, RunState
from atomic.tui.state.store import Changes, Store
from tests.support.timing import judge


def started(run: str = "r", kind: RunKind = RunKind.TURN, **more: Any) -> RunStarted:
    return RunStarted(run=run, kind=kind, **more)


def ended(run: str = "r", status: str = "done", **more: Any) -> RunEnded:
    return RunEnded(run=run, status=status, **more)


def activity(*events: AgentEvent, run: str = "r") -> list[Activity]:
    return [Activity(run=run, event=event) for event in events]


def apply_events(*events: ChatEvent, store: Store | None = None) -> Store:
    store = store or Store()
    for number, event in enumerate(events):
        store.apply(event, 100.0 + number)
    return store


def kinds(store: Store) -> list[BlockKind]:
    return [block.kind for block in store.screen.blocks]


def shown(store: Store, kind: BlockKind) -> list[Block]:
    return [block for block in store.screen.blocks if block.kind is kind]


def live(store: Store) -> list[Block]:
    return [block for block in store.screen.blocks if block.open or block.status in {"running", "waiting"}]


def test_without_an_agent_the_full_instructions_appear_once() -> None:
    store = Store()
    for _ in range(2):
        store.apply(StatusChanged(problem="No agent can be used here (atomic demo shows a run)"), 1.0)

    [warning] = store.screen.blocks
    assert (warning.kind, warning.text) == (
        BlockKind.WARNING,
        "No agent can be used here (atomic demo shows a run)",
    )


def test_an_answer_becomes_blocks_and_only_the_last_is_open() -> None:
    store = apply_events(
        started(prompt="hi"), *activity(TextDelta("One.\n\nTwo.\n\n```py\nx\n\ny"), TextDelta("\n```\nThree"))
    )
    answer = shown(store, BlockKind.ANSWER)
    assert [block.text for block in answer] == ["One.\n", "Two.\n", "```py\nx\n\ny\n```\n", "Three"]
    assert [block.open for block in answer] == [False, False, False, True]
    assert [block.lead for block in answer] == [True, False, False, False]
    apply_events(ended(), store=store)
    assert live(store) == []
    assert not store.screen.is_busy


def test_interleaved_sub_agents_keep_their_own_blocks() -> None:
    events = activity(
        SubagentStarted("a", "alice"),
        SubagentStarted("b", "bob"),
        TextDelta("al", agent="a"),
        TextDelta("bo", agent="b"),
        TextDelta("ice", agent="a"),
        TextDelta("b", agent="b"),
        TextDelta("main"),
    )
    store = apply_events(started(), *events)
    assert [(block.title or block.text, block.depth) for block in store.screen.blocks] == [
        ("alice", 0),
        ("alice", 1),
        ("bob", 0),
        ("bob", 1),
        ("main", 0),
    ]


def test_a_sub_agent_of_a_sub_agent_is_indented_further() -> None:
    events = activity(SubagentStarted("a", "a"), SubagentStarted("b", "b", agent="a"), TextDelta("x", agent="b"))
    store = apply_events(started(), *events)
    assert [(block.kind, block.depth) for block in store.screen.blocks] == [
        (BlockKind.SUBAGENT, 0),
        (BlockKind.SUBAGENT, 1),
        (BlockKind.ANSWER, 2),
    ]


def test_a_folded_sub_agent_hides_its_blocks_until_unfolded() -> None:
    events = activity(
        SubagentStarted("a", "a"),
        SubagentStarted("b", "b", agent="a"),
        TextDelta("x", agent="b"),
        TextDelta("y", agent="a"),
    )
    store = apply_events(started(), *events)
    head, inner, deep, own = store.screen.blocks
    assert head.folded
    assert inner.hidden
    assert deep.hidden
    assert own.hidden
    assert not head.hidden
    store.toggle(head.id)
    assert not inner.hidden
    assert deep.hidden
    assert not own.hidden
    store.toggle(inner.id)
    assert not deep.hidden
    store.toggle(head.id)
    assert inner.hidden
    assert deep.hidden
    assert own.hidden


def test_sub_agents_called_by_the_user_are_shown_unfolded() -> None:
    store = apply_events(started(kind=RunKind.AGENTS), *activity(SubagentStarted("a", "a"), TextDelta("x", agent="a")))
    assert [block.hidden for block in store.screen.blocks] == [False, False]


def test_a_tool_call_is_a_card_with_its_subject() -> None:
    edit = {"file_path": "src/auth.py", "old_string": "a\nb", "new_string": "a\nc\nd"}
    events = activity(ToolStarted("t", "Edit", edit), ToolEnded("t", "ok"))
    store = apply_events(started(), *events)
    (card,) = shown(store, BlockKind.TOOL)
    assert (card.title, card.detail, card.status) == ("Edit", "src/auth.py  +2 -1", "done")
    assert card.input == " a\n-b\n+c\n+d"
    assert card.output == "ok"
    assert card.seconds == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "input", "title", "detail"),
    [
        ("bash", {"command": "ls -l"}, "Bash", "ls -l"),
        ("Bash", {"command": "a\nb\nc", "description": "d"}, "Bash", "a … +2 lines"),
        ("Write", {"file_path": "a.py", "content": "x\ny\n"}, "Write", "a.py  +2 -0"),
        ("mcp__github__search", {"query": "login"}, "github · search", "login"),
        ("Grep", {"pattern": "def", "path": "src"}, "Grep", "src"),
        ("apply_patch", {"input": "*** Begin Patch\n+a\n-b\n-c"}, "Apply_patch", "+1 -2"),
        ("Odd", {"n": 1, "deep": {"a": [1]}}, "Odd", ""),
        ("Empty", {}, "Empty", ""),
    ],
)
def test_the_title_and_detail_of_a_card(name: str, input: dict[str, Any], title: str, detail: str) -> None:
    store = apply_events(started(), *activity(ToolStarted("t", name, input)))
    (card,) = shown(store, BlockKind.TOOL)
    assert (card.title, card.detail) == (title, detail)


def test_a_long_output_keeps_its_start_and_end() -> None:
    lines = [f"line {number}\n" for number in range(50_000)]
    store = apply_events(started(), *activity(ToolStarted("t", "Bash", {}), *(ToolOutput("t", line) for line in lines)))
    (card,) = shown(store, BlockKind.TOOL)
    assert card.output.startswith("line 0\n")
    assert card.output.endswith("line 49999\n")
    assert len(card.output) < 20_000
    left_out = int(card.output.split("… ")[1].split(" lines")[0].replace(",", ""))
    assert left_out + card.output.count("line ") == pytest.approx(50_000, abs=2)


def test_a_failed_tool_shows_why() -> None:
    store = apply_events(started(), *activity(ToolStarted("t", "Bash", {}), ToolEnded("t", "out", error="exit 1")))
    (card,) = shown(store, BlockKind.TOOL)
    assert card.status == "failed"
    assert card.output == "out\nexit 1"


def test_the_end_of_a_run_ends_its_tools_and_agents() -> None:
    store = apply_events(
        started(prompt="go"),
        *activity(
            ToolStarted("t", "Bash", {}), SubagentStarted("a", "a"), ThinkingDelta("hm", agent="a"), TextDelta("x")
        ),
        QuestionOpened(id="q", run="r", question=Question("Which?")),
        ended(status="interrupted"),
    )
    screen = store.screen
    assert not screen.is_busy
    assert not screen.questions
    assert live(store) == []
    assert {agent.ended is not None for agent in screen.agents.values()} == {True}
    assert shown(store, BlockKind.TOOL)[0].status == "interrupted"
    assert shown(store, BlockKind.QUESTION)[0].status == "interrupted"


def test_events_after_the_end_of_a_run_are_dropped() -> None:
    store = apply_events(started(), *activity(TextDelta("a")), ended())
    before = len(store.screen.blocks)
    late = [*activity(TextDelta("b"), ToolStarted("t", "Bash", {})), ended(status="failed", message="x"), started()]
    assert [store.apply(events, 200.0) for events in late] == [Changes.NONE] * 4
    assert store.apply(QuestionOpened(id="q", run="r", question=Question("?")), 200.0) is Changes.NONE
    assert len(store.screen.blocks) == before
    assert not store.screen.questions
    assert not store.screen.is_busy


def test_events_of_an_unknown_run_are_dropped() -> None:
    store = apply_events(
        *activity(TextDelta("b"), run="unknown"), ended("unknown"), ShellOutput(run="unknown", text="x")
    )
    assert store.screen.blocks == []
    assert store.screen.runs == {}


def test_a_reviewer_that_ends_during_another_agent_stays_ended() -> None:
    """Guard against an old freeze.

    A completion was deferred while another agent was active.
    """
    store = apply_events(
        started(kind=RunKind.AGENTS),
        *activity(SubagentStarted("review", "reviewer"), SubagentStarted("work", "worker")),
        *activity(ToolStarted("t", "Bash", {}, agent="work"), TextDelta("Looks good.", agent="review")),
        *activity(SubagentEnded("review", "Looks good.")),
    )
    review = store.screen.agents["r/review"]
    work = store.screen.agents["r/work"]
    assert (review.status, work.status) == ("done", "running")
    assert [block.title for block in live(store)] == ["worker", "Bash"]
    assert store.screen.is_busy
    apply_events(*activity(SubagentEnded("work"), run="r"), ended(), store=store)
    assert not store.screen.is_busy
    assert live(store) == []


def test_a_turn_ends_even_if_its_sub_agents_never_end() -> None:
    store = apply_events(started(), *activity(SubagentStarted("a", "a"), TurnEnded(EndReason.DONE)), ended())
    assert not store.screen.is_busy
    assert live(store) == []


def test_esc_stops_at_once_and_twice_by_force() -> None:
    store = apply_events(started("w", RunKind.WORKFLOW), started("t"))
    assert store.stop_foreground(5.0) == Interrupt(run="t")
    assert store.screen.runs["t"].state is RunState.STOPPING
    assert store.screen.is_busy
    assert store.stop_foreground(5.1) == Interrupt(run="t", force=True)
    assert store.screen.runs["t"].forced
    apply_events(ended("t", "interrupted"), store=store)
    assert store.stop_foreground(5.2) == Interrupt(run="w")
    apply_events(ended("w", "paused"), store=store)
    assert store.stop_foreground(5.3) is None
    assert store.stop("t", 5.4) is None


def test_a_sent_text_is_shown_before_the_engine_answers() -> None:
    store = Store()
    store.begin("r", RunKind.TURN, "hello", 1.0)
    assert store.screen.is_busy
    assert [block.text for block in store.screen.blocks] == ["hello"]
    apply_events(started(prompt="hello"), *activity(TextDelta("hi there you")), ended(), store=store)
    assert kinds(store) == [BlockKind.USER, BlockKind.ANSWER]
    assert not store.screen.is_busy


def test_a_sent_text_can_turn_out_to_be_a_workflow() -> None:
    store = Store()
    store.begin("r", RunKind.TURN, "/ralph x", 1.0)
    apply_events(started(kind=RunKind.WORKFLOW, title="ralph", prompt="/ralph x", session="s1"), store=store)
    assert kinds(store) == [BlockKind.USER, BlockKind.RUN]
    assert store.screen.runs["r"].kind is RunKind.WORKFLOW
    assert store.screen.agents == {}
    apply_events(ended(status="completed"), store=store)
    assert live(store) == []


def test_an_answer_that_was_not_streamed_is_shown() -> None:
    store = apply_events(started(), *activity(TurnEnded(EndReason.DONE, "All at once.")), ended())
    assert [block.text for block in shown(store, BlockKind.ANSWER)] == ["All at once."]


def test_an_error_is_shown_once() -> None:
    store = apply_events(
        started(), *activity(TurnEnded(EndReason.ERROR, error="boom")), ended(status="failed", message="boom")
    )
    assert [block.text for block in shown(store, BlockKind.ERROR)] == ["boom"]


def test_a_shell_command_is_shown_with_its_output() -> None:
    store = apply_events(started(kind=RunKind.SHELL, prompt="!ls"), ShellOutput(run="r", text="a\n"), ended())
    (block,) = store.screen.blocks
    assert (block.kind, block.title, block.output, block.status) == (BlockKind.SHELL, "ls", "a\n", "done")


def test_questions_wait_until_they_are_answered() -> None:
    question = QuestionOpened(id="q", run="r", question=Question("Which?", options=("a", "b")), who="planner")
    store = apply_events(started(), question, question)
    assert list(store.screen.questions) == ["q"]
    assert len(shown(store, BlockKind.QUESTION)) == 1
    store.close_question("q")
    assert store.screen.questions == {}
    apply_events(QuestionClosed(id="q", answers=("b",)), QuestionClosed(id="q", answers=("a",)), store=store)
    assert [(block.output, block.status) for block in shown(store, BlockKind.QUESTION)] == [("b", "done")]


class Workflow:
    """Creates the events of a workflow run."""

    def __init__(self) -> None:
        self.seq = 0

    def event(self, kind: type[Any], /, **fields: Any) -> WorkflowActivity:
        self.seq += 1
        return WorkflowActivity(run="w", event=kind(run="s1", seq=self.seq, time=float(self.seq), **fields))

    def node_started(self, node: str, step: str, description: str = "", attempt: int = 1) -> WorkflowActivity:
        return self.event(wf.NodeStarted, node=node, step_id=step, attempt=attempt, description=description)

    def node_ended(self, node: str, step: str, status: str = "completed", error: str | None = None) -> WorkflowActivity:
        return self.event(wf.NodeEnded, node=node, step_id=step, attempt=1, status=status, seconds=2.5, error=error)

    def agent(self, event: AgentEvent, node: str = "worker", task: str | None = None) -> WorkflowActivity:
        return self.event(wf.AgentActivity, node=node, task=task, role=node, event=event)


def workflow(*events: ChatEvent) -> Store:
    return apply_events(RunStarted(run="w", kind=RunKind.WORKFLOW, title="ralph", session="s1"), *events)


def test_nodes_count_their_iterations() -> None:
    w = Workflow()
    store = workflow(
        w.node_started("plan", "1", "Plans the work"),
        w.node_ended("plan", "1"),
        w.node_started("worker", "2", "Works"),
        w.node_started("worker", "2", "Works", attempt=2),
        w.node_ended("worker", "2"),
        w.node_started("worker", "3", "Works"),
    )
    nodes = store.screen.runs["w"].nodes
    assert {id: (node.status, node.times) for id, node in nodes.items()} == {
        "plan": ("completed", 1),
        "worker": ("active", 2),
    }
    nodes_shown = [(block.text, block.detail, block.status) for block in shown(store, BlockKind.NODE)]
    assert nodes_shown == [("Plans the work", "", "done"), ("Works", "", "done"), ("Works", "iteration 2", "running")]


def test_a_node_with_two_steps_is_active_until_both_have_ended() -> None:
    w = Workflow()
    store = workflow(
        w.node_started("map", "1"), w.node_started("map", "2"), w.agent(TextDelta("x"), "map"), w.node_ended("map", "1")
    )
    assert store.screen.runs["w"].nodes["map"].status == "active"
    assert [agent.status for agent in store.screen.agents.values()] == ["running"]
    apply_events(w.node_ended("map", "2"), store=store)
    assert store.screen.runs["w"].nodes["map"].status == "completed"
    assert [agent.status for agent in store.screen.agents.values()] == ["done"]


def test_nodes_without_a_description_are_shown_only_if_they_fail() -> None:
    w = Workflow()
    store = workflow(
        w.node_started("a", "1"),
        w.node_ended("a", "1"),
        w.node_started("b", "2"),
        w.node_ended("b", "2", "failed", "no disk"),
    )
    assert [(block.title, block.output) for block in shown(store, BlockKind.NODE)] == [("b", "no disk")]


def test_workers_are_listed_with_their_task_and_activity() -> None:
    w = Workflow()
    store = workflow(
        w.event(wf.TasksChanged, tasks=[Task("3", "refresh endpoint")]),
        w.agent(ToolStarted("t", "Bash", {"command": "pytest"}), task="3"),
        w.agent(UsageReported(Usage(10, 5)), task="3"),
    )
    (agent,) = store.screen.agents.values()
    assert (agent.name, agent.task, agent.doing, agent.tools) == ("worker", "#3 refresh endpoint", "Bash pytest", 1)
    assert store.screen.runs["w"].usage == Usage(10, 5)
    assert [task.title for task in store.screen.tasks] == ["refresh endpoint"]


def test_workers_may_use_the_same_id_for_their_tools() -> None:
    w = Workflow()
    store = workflow(
        w.agent(ToolStarted("t", "Bash", {"command": "one"}), task="1"),
        w.agent(ToolStarted("t", "Bash", {"command": "two"}), task="2"),
        w.agent(ToolOutput("t", "of two"), task="2"),
        w.agent(ToolEnded("t", "of one"), task="1"),
    )
    assert [(tool.detail, tool.output, tool.status) for tool in shown(store, BlockKind.TOOL)] == [
        ("one", "of one", "done"),
        ("two", "of two", "running"),
    ]


def test_a_worker_may_use_the_id_of_a_tool_again_in_its_next_turn() -> None:
    w = Workflow()
    turn = [
        w.agent(ToolStarted("t", "Bash", {"command": "ls"})),
        w.agent(ToolEnded("t", "a")),
        w.agent(TurnEnded(EndReason.DONE)),
    ]
    store = workflow(*turn, *turn)
    assert [tool.output for tool in shown(store, BlockKind.TOOL)] == ["a", "a"]


def test_a_long_activity_that_repeats_does_not_redraw_the_heading() -> None:
    w = Workflow()
    store = workflow(w.agent(SubagentStarted("a", "explore", "x" * 200)))
    heading = shown(store, BlockKind.SUBAGENT)[0]
    before = heading.version
    apply_events(w.agent(SubagentStarted("b", "explore", "x" * 200)), store=store)
    assert heading.output == f"explore {'x' * 112}"
    assert heading.version == before


LIMITED = "The agent is rate-limited until Wed 14:30."


@pytest.mark.parametrize(("message", "text"), [("", LIMITED), ("Too many requests.", f"Too many requests. {LIMITED}")])
def test_a_rate_limit_is_shown_with_its_end_in_local_time(
    monkeypatch: pytest.MonkeyPatch, message: str, text: str
) -> None:
    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    try:
        reset = datetime(2026, 11, 18, 12, 30, tzinfo=UTC)
        store = apply_events(started(), *activity(LimitReached(reset, message)))
        w = Workflow()
        run = workflow(w.event(wf.LimitReached, kind="provider", limit=None, spent=None, reset_at=reset.timestamp()))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [block.text for block in shown(store, BlockKind.WARNING)] == [text]
    assert [block.text for block in shown(run, BlockKind.WARNING)] == [f"{LIMITED} The run waits or pauses."]


def test_a_rate_limit_without_an_end_is_shown() -> None:
    store = apply_events(started(), *activity(LimitReached()))
    assert [block.text for block in shown(store, BlockKind.WARNING)] == ["The agent is rate-limited."]


def test_each_turn_of_a_worker_has_its_own_heading() -> None:
    w = Workflow()
    turn = [w.agent(TextDelta("some text")), w.agent(TurnEnded(EndReason.DONE))]
    store = workflow(*turn, *turn)
    assert [block.status for block in shown(store, BlockKind.SUBAGENT)] == ["done", "done"]


def test_a_paused_workflow_shows_how_to_resume_it() -> None:
    store = workflow()
    apply_events(ended("w", "paused", message="Paused.", resume="atomic resume s1"), store=store)
    head, end = shown(store, BlockKind.RUN)
    assert head.status == "paused"
    assert (end.text, end.output) == ("Paused.", "atomic resume s1")


def test_the_graph_of_a_finished_run_can_still_be_drawn() -> None:
    store = workflow()
    apply_events(ended("w", "completed"), GraphDrawn(run="w", lines=("a",), positions={"a": (0, 0, 1)}), store=store)
    assert store.screen.runs["w"].drawing == ("a",)


def history(*events: ChatEvent, junk: int = 0) -> History:
    raw = [msgspec.Raw(encode(event).strip()) for event in events]
    return History(events=(*raw, *([msgspec.Raw(b'{"type":"of tomorrow"}')] * junk)))


def test_a_reopened_conversation_looks_as_before() -> None:
    events = [
        started(prompt="hi", time=10.0),
        *activity(TextDelta("One.\n\nTwo."), ToolStarted("t", "Bash", {"command": "ls"}), ToolEnded("t", "a")),
        ended(time=12.0),
        ChatNotice(text="note"),
    ]
    live_store = apply_events(*events)
    old_store = apply_events(history(*events))
    fields = ("kind", "text", "title", "detail", "output", "status", "depth", "gap", "lead", "hidden", "folded")
    looks = [[tuple(getattr(b, f) for f in fields) for b in s.screen.blocks] for s in (live_store, old_store)]
    assert looks[0] == looks[1]
    assert len(looks[0]) > 4


def test_an_unfinished_turn_of_the_history_is_not_active() -> None:
    store = apply_events(history(started(time=1.0), *activity(TextDelta("half"), ToolStarted("t", "Bash", {}))))
    assert not store.screen.is_busy
    assert live(store) == []


def test_a_workflow_of_the_history_has_no_spinner_and_shows_how_to_open_it() -> None:
    w = Workflow()
    store = apply_events(
        history(started("w", RunKind.WORKFLOW, session="s1", time=1.0), w.node_started("a", "1", "Does a"))
    )
    assert not store.screen.is_busy
    assert live(store) == []
    assert "atomic attach s1" in shown(store, BlockKind.RUN)[-1].text


def test_a_run_watched_later_keeps_its_own_times() -> None:
    w = Workflow()
    begun = w.event(wf.RunStarted, workflow="ralph", prompt="x", session_dir="d")
    node_ended = w.event(wf.RunEnded, status="completed", reason="", message="", exit_code=0)
    store = apply_events(RunStarted(run="w", kind=RunKind.WORKFLOW, title="ralph", time=100.0), begun)
    apply_events(
        w.node_started("a", "1", "Does a"),
        w.node_ended("a", "1"),
        node_ended,
        ended("w", "completed", time=103.0),
        store=store,
    )
    head, end = shown(store, BlockKind.RUN)
    assert head.seconds == end.seconds == pytest.approx(1.0)


def test_a_question_of_the_history_does_not_open() -> None:
    w = Workflow()
    asked = w.event(wf.QuestionAsked, question=Question("Which?", id="q1"), node="ask")
    store = workflow(asked)
    assert [block.status for block in shown(store, BlockKind.QUESTION)] == [""]
    apply_events(QuestionOpened(id="w:q1", run="w", question=Question("Which?", id="q1"), who="ask"), store=store)
    assert [block.status for block in shown(store, BlockKind.QUESTION)] == ["waiting"]
    apply_events(QuestionClosed(id="w:q1", answers=("main",)), ended("w", "completed"), store=store)
    assert [(block.status, block.output) for block in shown(store, BlockKind.QUESTION)] == [("done", "main")]


def test_unreadable_events_are_counted_in_one_notice() -> None:
    store = apply_events(history(ChatNotice(text="x"), junk=3), history())
    assert [block.text for block in shown(store, BlockKind.WARNING)] == [
        "3 entries of a newer Atomic could not be read."
    ]


def test_clearing_the_transcript_keeps_a_workflow_running() -> None:
    w = Workflow()
    store = workflow(w.node_started("a", "1", "Does a"), w.agent(TextDelta("some text")))
    apply_events(
        Cleared(session="new"),
        w.agent(TextDelta("more text")),
        w.node_ended("a", "1"),
        ended("w", "completed"),
        store=store,
    )
    assert live(store) == []
    assert not store.screen.is_busy
    assert store.screen.blocks[-1].kind is BlockKind.RUN


def test_plans_and_notices_are_shown() -> None:
    plan = (PlanItem("one"),)
    store = apply_events(started(), *activity(PlanChanged(plan)), ChatNotice(text="careful", level=Level.WARNING))
    assert store.screen.plan == plan
    assert shown(store, BlockKind.WARNING)[0].text == "careful"


def test_the_queue_keeps_its_order_and_can_be_edited() -> None:
    store = Store()
    for text in ("one", "two", "three"):
        store.enqueue(text)
    first, second, _ = store.screen.queue
    store.edit_queue(first.id, "ONE")
    store.edit_queue(second.id, " ")
    assert [store.dequeue(), store.dequeue(), store.dequeue()] == ["ONE", "three", None]


@pytest.mark.timed
def test_a_delta_takes_less_than_50_microseconds() -> None:
    deltas = activity(
        *(TextDelta(f"word {number} of a text.\n\n" if number % 9 == 0 else "word ") for number in range(5000))
    )
    store = apply_events(started())
    before = time.process_time()
    for delta in deltas:
        store.apply(delta, 1.0)
    judge((time.process_time() - before) / len(deltas), 50e-6)


def test_the_steps_of_all_tasks_mark_one_node_of_the_drawing() -> None:
    w = Workflow()
    store = workflow(w.node_started("work[1]", "1"), w.node_started("work[a/b]", "2"))
    nodes = store.screen.runs["w"].nodes
    assert {id: (node.status, node.times) for id, node in nodes.items()} == {"work": ("active", 2)}
    apply_events(w.node_ended("work[1]", "1"), store=store)
    assert nodes["work"].status == "active"
    apply_events(w.node_ended("work[a/b]", "2"), store=store)
    assert nodes["work"].status == "completed"


@pytest.mark.parametrize("status", ["cancelled", "paused"])
def test_interrupted_work_does_not_look_done(status: str) -> None:
    w = Workflow()
    store = workflow(
        w.node_started("fix[1]", "s", "Fixes it"),
        w.agent(TextDelta("a"), "fix[1]"),
        w.node_ended("fix[1]", "s", status),
        ended("w", status="paused"),
    )
    (node,) = shown(store, BlockKind.NODE)
    (head,) = shown(store, BlockKind.SUBAGENT)
    assert (node.status, head.status) == ("interrupted", "interrupted")
    assert store.screen.runs["w"].nodes["fix"].status == "resting"
    assert [agent.status for agent in store.screen.agents.values()] == ["interrupted"]


def test_a_workflow_sums_up_the_cost_of_all_its_turns() -> None:
    w = Workflow()

    def turn(task: str, cost: float) -> list[WorkflowActivity]:
        end = TurnEnded(EndReason.DONE, "done", Usage(10, 5, 0, cost))
        return [w.agent(event, task=task) for event in (TextDelta("a"), UsageReported(Usage(10, 5)), end)]

    store = workflow(*turn("1", 0.25), *turn("2", 0.5), w.agent(UsageReported(Usage(1, 1)), task="3"))
    assert store.screen.runs["w"].usage == Usage(21, 11, 0, 0.75)
    apply_events(ended("w", status="completed"), store=store)
    assert shown(store, BlockKind.RUN)[-1].input == "$0.75"
