"""All states that are kept as references."""

from __future__ import annotations

from atomic.tui.protocol import PickKind, PickOpened
from atomic.tui.screens.confirm import ConfirmScreen
from atomic.tui.screens.help import HelpScreen
from atomic.tui.screens.keys import KeysScreen
from atomic.tui.screens.palette import Action, PaletteScreen
from atomic.tui.screens.pick import PickScreen
from atomic.tui.screens.question import QuestionScreen
from atomic.tui.state.model import QuestionEntry, RunState, Screen
from tests.tui.snapshots import material as m
from tests.tui.snapshots.stage import LARGE, NORMAL, SMALL, State

_ALL = (SMALL, NORMAL, LARGE)
_FOUR = ("dark", "light", "ansi", "contrast")
_ACTIONS = [
    Action("tasks", "Show the tasks", "Ctrl+T"),
    Action("copy_answer", "Copy the last answer", "Ctrl+Y"),
    Action("model", "Choose a model", "F2"),
]
_LEAVE = "ralph goes on without the screen. `atomic attach 9f8e7d6c` shows it again, `atomic stop 9f8e7d6c` pauses it."


def _ask(*questions: QuestionEntry) -> QuestionScreen:
    return QuestionScreen(questions)


def _one(question: object, who: str = "worker#4") -> list[QuestionEntry]:
    return [QuestionEntry("q1", "w1", question, who)]  # type: ignore[arg-type]


STATES = [
    State("start", Screen, sizes=_ALL),
    State("no-agent", lambda: Screen(status=m.NO_AGENT), sizes=_ALL),
    State("idle", m.chat, sizes=_ALL, themes=_FOUR),
    State("working", lambda: m.chat(runs={"t1": m.turn()}), sizes=_ALL),
    State("quiet", lambda: m.chat(runs={"t1": m.turn(seconds=3700, heard=48)})),
    State("stopping", lambda: m.chat(runs={"t1": m.turn(RunState.STOPPING)}), sizes=_ALL),
    State("plan", lambda: m.chat(runs={"t1": m.turn()}, plan=m.plan())),
    State("ralph", m.ralph, sizes=_ALL, themes=_FOUR),
    State("statuses", lambda: m.ralph(tasks=m.all_statuses())),
    State("tasks-200", lambda: m.ralph(tasks=m.many_tasks()), sizes=_ALL),
    State("agents-8", lambda: m.ralph(agents=m.agents(8))),
    State("agents-40", lambda: m.ralph(agents=m.agents(40))),
    State("questions-3", lambda: m.ralph(questions=m.three_questions()), sizes=_ALL),
    State("question", m.ralph, lambda: _ask(*_one(m.branch_question())), sizes=_ALL, themes=_FOUR),
    State("question-other", m.ralph, lambda: _ask(*_one(m.branch_question())), ("4", "h", "o", "t")),
    State("question-multi", m.ralph, lambda: _ask(*_one(m.tests_question())), ("down", "space"), sizes=_ALL),
    State("question-words", m.ralph, lambda: _ask(*list(m.three_questions().values())[2:]), sizes=_ALL),
    State("question-1-of-3", m.ralph, lambda: _ask(*m.three_questions().values()), sizes=_ALL),
    State("question-2-of-3", m.ralph, lambda: _ask(*m.three_questions().values()), ("tab",)),
    State("pick-model", m.chat, lambda: PickScreen(m.models()), sizes=_ALL, themes=_FOUR),
    State("pick-filtered", m.chat, lambda: PickScreen(m.models()), tuple("soneet")),
    State("pick-nothing", m.chat, lambda: PickScreen(m.models()), tuple("zzzz")),
    State("pick-empty", m.chat, lambda: PickScreen(PickOpened(request="p", kind=PickKind.MCP, title="MCP servers"))),
    State("pick-theme", m.chat, lambda: PickScreen(m.themes()), ("end",)),
    State("pick-session", m.chat, lambda: PickScreen(m.sessions()), sizes=_ALL),
    State("pick-session-end", m.chat, lambda: PickScreen(m.sessions()), ("up", "up", "up", "up")),
    State("pick-mcp", m.chat, lambda: PickScreen(m.servers()), ("down",)),
    State("pick-provider", m.chat, lambda: PickScreen(m.providers())),
    State("help", m.chat, lambda: HelpScreen(m.COMMANDS), sizes=_ALL, themes=_FOUR),
    State("keys", m.chat, lambda: KeysScreen(m.KEYS), sizes=_ALL),
    State("keys-scrolled", m.chat, lambda: KeysScreen(m.KEYS), ("pagedown",), sizes=(SMALL,)),
    State("palette", m.chat, lambda: PaletteScreen(m.COMMANDS, _ACTIONS), sizes=_ALL),
    State("palette-filtered", m.chat, lambda: PaletteScreen(m.COMMANDS, _ACTIONS), tuple("mod")),
    State("confirm", m.ralph, lambda: ConfirmScreen("Leave?", _LEAVE, yes="Leave", no="Stay"), sizes=_ALL),
    State("question-long", m.ralph, lambda: _ask(*_one(m.long_question())), sizes=_ALL),
]
