"""The lines of the panels, as a function of the state."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atomic.chat.protocol import RunKind, StatusChanged
from atomic.providers.events import PlanItem, Usage
from atomic.tasks import Task, TaskStatus
from atomic.tui.panel_layout import inbox_lines
from atomic.tui.state.model import AgentEntry, NodeEntry, QuestionEntry, RunEntry, RunState, Screen
from atomic.tui.text import bar, clock, window, windowed
from atomic.tui.widgets.agents import agent_lines, agents_shown
from atomic.tui.widgets.graph import chain, graph_lines, workflow_shown
from atomic.tui.widgets.header import header_line
from atomic.tui.widgets.status import foreground, status_line
from atomic.tui.widgets.tasks import task_lines, task_strip
from tests.tui.snapshots import samples

NOW = samples.NOW
WIDTHS = st.integers(1, 200)


def _rows(lines: list[object]) -> list[str]:
    return [str(line).rstrip() for line in lines]


# Width and height.


@settings(max_examples=40)
@given(width=WIDTHS)
def test_one_line_has_exactly_its_width(width: int) -> None:
    busy = samples.ralph(questions=samples.three_questions(), queue=samples.queued("a", "b"))
    lines = [
        *(header_line(status, width) for status in (samples.READY, samples.NO_AGENT, StatusChanged())),
        *(status_line(screen, NOW, width) for screen in (samples.chat(), busy, Screen(), samples.ralph())),
        task_strip(busy, width),
    ]
    assert {line.cell_length for line in lines} == {width}


@settings(max_examples=25)
@given(width=st.integers(20, 200), height=st.integers(2, 60), shift=st.integers(-300, 300))
def test_panels_fit_their_width_and_height(width: int, height: int, shift: int) -> None:
    screen = samples.ralph(tasks=samples.many_tasks(), agents=samples.agents(40), questions=samples.three_questions())
    run = screen.runs["w1"]
    panels = [
        task_lines(screen, width, height, shift),
        agent_lines(screen, NOW, width, height, shift),
        graph_lines(run, width, height, shift),
        inbox_lines(list(screen.questions.values()), width, height, shift),
    ]
    assert all(len(panel) <= height for panel in panels)
    assert all(line.cell_length <= width for panel in panels for line in panel)


@given(count=st.integers(0, 300), room=st.integers(1, 60), focus=st.integers(0, 299))
def test_the_visible_rows_contain_the_focused_one(count: int, room: int, focus: int) -> None:
    begin, end = window(count, room, min(focus, max(0, count - 1)))
    assert end - begin == min(count, room)
    assert count == 0 or begin <= min(focus, count - 1) < end


# Tasks.


def test_each_status_has_its_icon() -> None:
    lines = _rows([*task_lines(Screen(tasks=samples.all_statuses()), 60, 20)])
    assert lines[0].startswith("─ tasks 2/6 · 1 failed ─")
    assert [line[0] for line in lines[1:]] == ["○", "▶", "✓", "✗", "⊘", "↷"]


def test_only_open_tasks_block() -> None:
    tasks = (
        Task("1", "first", status=TaskStatus.COMPLETED),
        Task("2", "second", status=TaskStatus.IN_PROGRESS),
        Task("3", "third", blocked_by=["1", "2"]),
        Task("4", "fourth", blocked_by=["1"]),
        Task("5", "fifth", blocked_by=["2", "3", "4"]),
    )
    lines = _rows([*task_lines(Screen(tasks=tasks), 50, 20)])
    assert lines[3].endswith("blocked by 2")
    assert "blocked" not in lines[4]
    assert lines[5].endswith("blocked by 2 +2")


def test_a_tasks_title_takes_precedence_over_its_blockers() -> None:
    tasks = (Task("1", "first"), Task("2", "A title that is long", blocked_by=["1"]))
    assert [_rows([*task_lines(Screen(tasks=tasks), width, 20)])[2] for width in (60, 34)] == [
        "○ 2 A title that is long                        blocked by 1",
        "○ 2 A title that is long   after 1",
    ]


def test_active_tasks_are_visible_among_many() -> None:
    lines = _rows([*task_lines(Screen(tasks=samples.many_tasks(200, 87)), 60, 12)])
    assert len(lines) == 12
    assert sum(line.startswith("▶") for line in lines) == 4
    hidden = int(lines[1].split()[1]) + int(lines[-1].split()[1])
    assert hidden + (len(lines) - 3) == 200


def test_without_tasks_the_plan_is_shown() -> None:
    lines = _rows([*task_lines(Screen(plan=samples.plan()), 50, 20)])
    assert lines[0].startswith("─ plan 2/4 ─")
    assert [line[0] for line in lines[1:]] == ["✓", "▶", "○", "↷"]
    assert "unknown" in _rows([*task_lines(Screen(plan=(PlanItem("unknown", "dreaming"),)), 50, 20)])[1]


def test_the_strip_names_the_task_in_progress() -> None:
    words = " ".join(str(task_strip(Screen(tasks=samples.many_tasks()), 80)).split())
    assert words == "☑ 87/200 ▶ 88 Move module 88 to the new storage layer +3 Ctrl+T tasks"


# Agents.


def test_sub_agents_follow_the_agent_that_called_them() -> None:
    names = [(agent.name, depth) for agent, depth in agents_shown(samples.ralph())]
    assert names == [
        ("planner", 0),
        ("worker#3", 0),
        ("explorer", 1),
        ("reader", 2),
        ("worker#4", 0),
        ("tester", 1),
        ("reviewer", 0),
    ]


def test_agents_that_call_each_other_in_a_cycle_are_all_shown() -> None:
    agents = {key: AgentEntry(key, key, "w1", parent=other) for key, other in (("a", "b"), ("b", "a"))}
    assert len(agents_shown(samples.ralph(agents=agents))) == 2


def test_the_agent_panel_is_hidden_for_a_single_agent() -> None:
    own = {"t1/": AgentEntry("", "claude", "t1", started=NOW)}
    assert agents_shown(samples.chat(runs={"t1": samples.turn()}, agents=own)) == []
    own["t1/x"] = AgentEntry("x", "explorer", "t1", started=NOW, parent="t1/")
    assert [depth for _, depth in agents_shown(samples.chat(runs={"t1": samples.turn()}, agents=own))] == [0, 1]


def test_each_agent_has_its_time_and_activity() -> None:
    lines = _rows([*agent_lines(samples.ralph(agents=samples.agents(8)), NOW, 60, 20)])
    assert lines[0].startswith("─ agents 8▶ ─")
    assert lines[3].split() == ["▶", "worker#3", "1:03", "Grep", "refresh_token"]


# Graph.


def test_the_chain_has_marks_and_iterations() -> None:
    run = samples.workflow(drawing=False)
    assert str(chain(run, 80)) == "plan ✓ → work ▶ (3) → gate ✓ (2) → review ○"
    assert str(chain(run, 24)) == "… → work ▶ (3) → …"
    assert str(chain(run, 10)) == "work ▶ (3)"


@pytest.mark.parametrize("status", ["active", "waiting"])
def test_a_finished_workflow_has_no_active_node(status: str) -> None:
    run = samples.workflow(RunState.ENDED, status="paused")
    run.nodes["work"] = NodeEntry("work", status, 3)
    lines = _rows([*graph_lines(run, 34, 40)])
    assert lines[0].startswith("─ ralph  paused ─")
    assert "│‖work ×3 │" in lines[10]
    assert str(chain(run, 80)) == "plan ✓ → work ‖ (3) → gate ✓ (2) → review ○"


def test_the_drawing_marks_the_names_of_nodes() -> None:
    lines = _rows([*graph_lines(samples.workflow(), 34, 40)])
    assert "│▶work ×3 │" in lines[10]
    assert "│✓gate ×2 │" in lines[14]
    assert "│ review  │" in lines[18]


def test_a_drawing_that_is_too_large_shows_the_active_node() -> None:
    run = samples.workflow()
    for id in run.nodes:
        run.nodes[id] = NodeEntry(id, "active" if id == "review" else "completed", 1)
    lines = _rows([*graph_lines(run, 20, 10)])
    assert any("▶review" in line for line in lines)
    assert not any("plan" in line for line in lines)


def test_a_wide_name_at_the_edge_is_not_cut_in_half() -> None:
    run = RunEntry("w", RunKind.WORKFLOW, nodes={"計画": NodeEntry("計画", "active")}, drawing=("│ 計画 │",) * 12)
    run.positions = {"計画": (0, 2, 4)}
    for width in range(1, 10):
        assert all(line.cell_length <= max(4, width) for line in graph_lines(run, width, 12))


def test_a_running_workflow_is_shown_before_a_finished_one() -> None:
    old = samples.workflow()
    new = samples.workflow(RunState.ENDED)
    assert workflow_shown(Screen(runs={"a": old, "b": new})) is old
    assert workflow_shown(Screen(runs={"b": new})) is new
    assert workflow_shown(samples.chat(runs={"t1": samples.turn()})) is None


# Header and status.


def test_a_narrow_header_shows_less() -> None:
    assert str(header_line(samples.READY, 120)).split() == (
        ["atomic", "·", "claude", "·", "opus", "~/proj", "(main)", "ctx", "34%", "▮▮▮▯▯▯▯▯", "68k/200k", "·", "$0.42"]
    )
    assert str(header_line(samples.READY, 40)).split() == ["claude", "·", "opus", "ctx", "34%", "·", "$0.42"]
    assert str(header_line(samples.NO_AGENT, 40)).split() == ["atomic", "·", "no", "agent", "~/new"]


def test_without_a_price_the_tokens_are_shown() -> None:
    status = StatusChanged(provider="opencode", usage=Usage(input=12_300, output=950))
    assert str(header_line(status, 80)).rstrip().endswith("↑12k ↓950")


@pytest.mark.parametrize(
    ("screen", "words"),
    [
        (samples.chat(runs={"t1": samples.turn()}), "● working 12 s · Esc stops"),
        (samples.chat(runs={"t1": samples.turn(RunState.STARTING, quiet=0)}), "● starting 12 s · Esc stops"),
        (samples.chat(runs={"t1": samples.turn(seconds=65, quiet=48)}), "● working 1:05 · quiet for 48 s · Esc stops"),
        (samples.chat(runs={"t1": samples.turn(RunState.STOPPING, quiet=3)}), "stopping 3 s · Esc again forces"),
        (samples.ralph(), "● ralph 2:05 · Esc pauses"),
        (samples.ralph(runs={"w1": samples.workflow(), "t1": samples.turn()}), "● working 12 s · 1 more · Esc stops"),
        (samples.ralph(questions=samples.three_questions()), "? 3 questions wait · F6 answers"),
        (samples.chat(), "⏎ send · Ctrl+J newline · / commands · @ files · ! shell · ? keys"),
        (Screen(status=samples.NO_AGENT), "No agent can be used here · atomic doctor says why"),
    ],
)
def test_the_status_shows_the_current_activity(screen: Screen, words: str) -> None:
    assert str(status_line(screen, NOW, 120)).startswith(words + " ")


def test_a_narrow_status_still_shows_the_queue() -> None:
    screen = samples.chat(runs={"t1": samples.turn()}, queue=samples.queued("a", "b"))
    assert str(status_line(screen, NOW, 38)).rstrip().endswith("queued 2")
    assert str(status_line(screen, NOW, 80)).rstrip().endswith("queued 2 · session a1b2c3d4")


def test_a_narrow_status_keeps_the_most_important_parts() -> None:
    asked = samples.ralph(questions=samples.three_questions(), queue=samples.queued("a"))
    assert str(status_line(asked, NOW, 38)).split("  ")[0] == "? 3 questions wait"
    assert str(status_line(asked, NOW, 38)).endswith("queued 1")
    assert str(status_line(samples.chat(), NOW, 38)).rstrip() == "⏎ send · / commands · @ files · ? keys"
    assert "! shell · ? keys " in str(status_line(samples.chat(), NOW, 78))
    assert str(status_line(samples.chat(), NOW, 78)).endswith("session a1b2c3d4")


@pytest.mark.parametrize(
    ("width", "words"),
    [(120, "No agent can be used here: claude: run `claude` once and log in"),
     (60, "No agent can be used here · atomic doctor says why"),
     (30, "No agent can be used here")],
)  # fmt: skip
def test_a_narrow_status_shortens_a_problem_to_whole_phrases(width: int, words: str) -> None:
    status = StatusChanged(problem="No agent can be used here: claude: run `claude` once and log in")
    assert str(status_line(Screen(status=status), NOW, width)).rstrip() == words


def test_esc_stops_the_conversation_before_a_workflow() -> None:
    runs = {"t1": samples.turn(), "w1": samples.workflow()}
    assert foreground(Screen(runs=runs)) is runs["t1"]
    runs["t1"].state = RunState.ENDED
    assert foreground(Screen(runs=runs)) is runs["w1"]
    runs["w1"].state = RunState.ENDED
    assert foreground(Screen(runs=runs)) is None


# Other.


def test_durations_and_bars_are_short() -> None:
    assert [clock(seconds) for seconds in (-3, 0, 7.9, 60, 125, 3600, 12_000)] == [
        "0 s", "0 s", "7 s", "1:00", "2:05", "1:00:00", "3:20:00",
    ]  # fmt: skip
    assert [bar(share, 8)[0].count("▮") for share in (0, 0.001, 0.34, 0.5, 0.999, 1, 1.4)] == [0, 1, 3, 4, 7, 8, 8]


def test_hidden_rows_are_counted() -> None:
    rows = [samples.READY.model and header_line(samples.READY, 10) for _ in range(9)]
    shown = [str(row) for row in windowed(rows, 5, 4)]  # type: ignore[arg-type]
    assert (shown[0], shown[-1], len(shown)) == ("  … 4 above", "  … 2 more", 5)


def test_hostile_texts_are_only_shown() -> None:
    bad = "\x1b]0;x\x07\u202e\u200b\n[red]y"
    screen = samples.hostile()
    screen.agents = {"a": AgentEntry("a", bad, "w1", doing=bad), "b": AgentEntry("b", bad, "w1", doing=bad)}
    run = screen.runs["w1"] = samples.workflow(title=bad, nodes={bad: NodeEntry(bad, "active", 2)})
    run.drawing = (bad,) * 12
    questions = [QuestionEntry("q", "w1", samples.branch_question(), bad)]
    lines = [
        header_line(screen.status, 100),
        status_line(screen, NOW, 100),
        *task_lines(screen, 100, 30),
        *agent_lines(screen, NOW, 100, 30),
        *graph_lines(run, 100, 30),
        *inbox_lines(questions, 100, 30),
    ]
    text = "".join(map(str, lines))
    assert not set(text) & set("\x1b\x07\u202e\u200b\n")
    assert "[red]y" in text


def test_hints_name_remapped_keys() -> None:
    keys = {"stop": "Ctrl+X", "questions": "F9", "tasks": ""}
    assert str(status_line(samples.ralph(), NOW, 80, keys=keys)).startswith("● ralph 2:05 · Ctrl+X pauses ")
    assert "F9 answers" in str(status_line(samples.ralph(questions=samples.three_questions()), NOW, 80, keys=keys))
    assert "F9 answers" in str(inbox_lines(list(samples.three_questions().values()), 40, 9, keys=keys)[0])
    assert str(task_strip(samples.ralph(), 80, keys)).rstrip().endswith("rotates the token")  # no hint without a key


def test_a_task_of_a_paused_run_is_not_in_progress() -> None:
    run = RunEntry("r", RunKind.WORKFLOW, "ralph", state=RunState.ENDED, status="paused")
    screen = Screen(tasks=(Task("1", "Login", status=TaskStatus.IN_PROGRESS),), runs={"r": run})
    assert "‖ 1 Login" in str(task_strip(screen, 80))
    assert "▶" not in str(task_strip(screen, 80))
