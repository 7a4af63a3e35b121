"""Hostile texts have no effect in any panel or dialog."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.screen import Screen as TextualScreen

from atomic.chat.protocol import CommandInfo, PickKind, PickOpened, PickRow, StatusChanged
from atomic.providers.events import PlanItem
from atomic.questions import Option, Question
from atomic.tasks import Task, TaskStatus
from atomic.tui.panel_layout import inbox_lines
from atomic.tui.screens.lists import HelpScreen, KeysScreen, PaletteScreen, PickScreen
from atomic.tui.screens.question import QuestionScreen
from atomic.tui.state.model import AgentEntry, NodeEntry, QuestionEntry, Queued, Screen
from atomic.tui.text import harmless
from atomic.tui.widgets.agents import agent_lines
from atomic.tui.widgets.graph import graph_lines, graph_strip
from atomic.tui.widgets.header import header_line
from atomic.tui.widgets.status import status_line
from atomic.tui.widgets.tasks import task_lines, task_strip
from tests.tui.hostile import vectors
from tests.tui.snapshots import samples
from tests.tui.snapshots.frames import frame_of
from tests.tui.terminal_effects import effects

_WIDTH = 180


def _screen(bad: str) -> Screen:
    """Return a screen with the text in every field."""
    run = samples.workflow(title=bad, nodes={bad: NodeEntry(bad, "active", 2)}, positions={bad: (0, 0, 5)}, status=bad)
    run.drawing = (bad,) * 10
    return Screen(
        status=StatusChanged(provider=bad, model=bad, project=bad, branch=bad, session=bad, problem=bad),
        runs={"w1": run},
        agents={key: AgentEntry(key, bad, "w1", bad, bad, bad) for key in "ab"},
        tasks=(Task(bad, bad, status=TaskStatus.IN_PROGRESS), Task("2", bad, blocked_by=[bad])),
        plan=(PlanItem(bad, bad),),
        questions={"q": QuestionEntry("q", "w1", Question(bad, options=(Option(bad, bad),), header=bad), bad)},
        queue=[Queued(1, bad)],
    )


def _lines(screen: Screen) -> list[str]:
    run = screen.runs["w1"]
    without_tasks = Screen(plan=screen.plan)
    calm = Screen(status=screen.status)
    lines = [
        header_line(screen.status, _WIDTH),
        *(status_line(one, samples.NOW, _WIDTH) for one in (screen, calm)),
        status_line(Screen(runs=screen.runs), samples.NOW, _WIDTH),
        *(task_strip(one, _WIDTH) for one in (screen, without_tasks)),
        *task_lines(screen, _WIDTH, 20),
        *task_lines(without_tasks, _WIDTH, 20),
        *agent_lines(screen, samples.NOW, _WIDTH, 20),
        *graph_lines(run, _WIDTH, 20),
        *graph_lines(run, _WIDTH, 4),
        graph_strip(run, screen, _WIDTH),
        *inbox_lines(list(screen.questions.values()), _WIDTH, 20),
    ]
    return [str(line) for line in lines]


def test_no_panel_passes_control_sequences_on() -> None:
    found = {}
    for bad in vectors():
        lines = _lines(_screen(bad))
        assert not any("\n" in line for line in lines), repr(bad)
        assert [harmless(line) for line in lines] == lines, repr(bad)
        if done := effects("\n".join(lines)):
            found[bad] = done
    assert found == {}


def _dialogs(some: list[str]) -> list[TextualScreen[Any]]:
    rows = tuple(PickRow(bad, bad, bad, bad) for bad in some)
    commands = [CommandInfo(bad, bad, "skill", (bad,), bad) for bad in some]
    questions = [QuestionEntry("q", "r", Question(bad, options=tuple(Option(bad, bad) for bad in some)), bad)
                 for bad in some[:1]]  # fmt: skip
    return [
        PickScreen(PickOpened(request="p", kind=PickKind.SESSION, title=some[0], rows=rows)),
        HelpScreen(commands),
        KeysScreen([(bad, bad, bad) for bad in some]),
        PaletteScreen(commands, [(bad, bad, bad) for bad in some]),
        QuestionScreen(questions),
    ]


async def test_no_dialog_passes_control_sequences_on() -> None:
    """Check one page of texts per dialog, because all draw lines the same way."""
    app = App[None]()
    some = vectors()[::25]
    async with app.run_test(size=(_WIDTH, 200)) as pilot:
        for dialog in _dialogs(some):
            await app.push_screen(dialog)
            await pilot.pause()
            text = frame_of(app).text
            assert effects(text) == [], type(dialog).__name__
            assert harmless(text) == text, type(dialog).__name__
            await app.pop_screen()
