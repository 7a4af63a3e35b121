"""All states that are kept as references."""

from __future__ import annotations

from atomic.chat.protocol import PickKind, PickOpened
from atomic.questions import Question
from atomic.tui.screens.lists import Action, HelpScreen, KeysScreen, PaletteScreen, PickScreen
from atomic.tui.state.model import QuestionEntry, RunState, Screen
from tests.tui.snapshots import samples as m
from tests.tui.snapshots.capture import LARGE, NORMAL, SMALL, State

_ALL = (SMALL, NORMAL, LARGE)
_FOUR = ("dark", "light", "ansi", "contrast")
_ACTIONS = [
    Action("tasks", "Show the tasks", "Ctrl+T"),
    Action("copy_answer", "Copy the last answer", "Ctrl+Y"),
    Action("model", "Choose a model", "F2"),
]


def _queue(screen: Screen) -> Screen:
    screen.queue = m.queued("Then run the linter", "And write the changelog:\n- the fix\n- the test", "漢" * 100)
    return screen


def _everything() -> Screen:
    """A workflow, a conversation that goes on beside it, a queue and questions."""
    screen = m.ralph(questions=m.three_questions(), queue=m.queued("Then run the linter"), tasks=m.many_tasks())
    talk = m.streaming()
    talk.blocks[0].gap = True
    screen.blocks = m.answered().blocks + talk.blocks
    screen.runs |= talk.runs
    return screen


def _asked(question: Question, who: str = "worker#4") -> Screen:
    return m.ralph(questions={"q1": QuestionEntry("q1", "w1", question, who)})


STATES = [
    # the screen alone
    State("start", Screen, sizes=_ALL),
    State("no-agent", lambda: m.told(m.NO_AGENT, screen=Screen()), sizes=_ALL),
    State("idle", m.chat, sizes=_ALL, themes=_FOUR),
    State("quiet", lambda: m.chat(runs={"t1": m.turn(seconds=3700, heard=48)})),
    State("stopping", lambda: m.chat(runs={"t1": m.turn(RunState.STOPPING)}), sizes=_ALL),
    State("plan", lambda: m.chat(runs={"t1": m.turn()}, plan=m.plan())),
    # the transcript
    State("answer", m.answered, sizes=_ALL, themes=_FOUR),
    State("answer-top", m.answered, keys=("ctrl+home",)),
    State("markdown", m.markdown, sizes=_ALL),
    State("markdown-top", m.markdown, keys=("ctrl+home",), sizes=_ALL),
    State("unfolded", m.unfolded, sizes=_ALL, themes=_FOUR),
    State("new-below", m.answered, keys=("ctrl+home",), later=m.more_words, sizes=(SMALL, NORMAL), themes=_FOUR),
    State("streaming", m.streaming, sizes=_ALL),
    State("error", m.errors, sizes=_ALL, themes=_FOUR),
    State("long-line", m.long_line, sizes=_ALL),
    State("shell", m.shell),
    State("crew", m.crew),
    State("hostile", m.hostile, sizes=_ALL),
    # the prompt
    State("typing", m.chat, keys=(*"Hello", "ctrl+j", *"you"), sizes=_ALL),
    State("typing-wide", m.chat, paste="漢字 and ﾊﾝｶｸ and é"),
    State("paste", m.chat, paste="line of a big paste\n" * 5_200, sizes=_ALL),
    State("popup", m.answered, keys=("/",), sizes=_ALL, themes=_FOUR),
    State("popup-filtered", m.answered, keys=tuple("/re")),
    State("hint", m.answered, keys=(*"/ral", "tab"), sizes=_ALL),
    State("queue", lambda: _queue(m.streaming()), sizes=_ALL),
    # workflows
    State("ralph", m.ralph, sizes=_ALL, themes=_FOUR),
    State("everything", _everything, sizes=_ALL, themes=_FOUR),
    State("statuses", lambda: m.ralph(tasks=m.all_statuses())),
    State("tasks-200", lambda: m.ralph(tasks=m.many_tasks()), sizes=_ALL),
    State("agents-8", lambda: m.ralph(agents=m.agents(8))),
    State("agents-40", lambda: m.ralph(agents=m.agents(40))),
    State("questions-3", lambda: m.ralph(questions=m.three_questions()), sizes=_ALL),
    State("paused", lambda: m.ended_workflow("paused", "Paused by the person.", "atomic resume 9f8e7d6c")),
    State("completed", lambda: m.ended_workflow("completed", "All tasks are done and reviewed.")),
    State("overlay-tasks", lambda: m.ralph(tasks=m.many_tasks()), overlay="task", sizes=(SMALL, NORMAL)),
    State("overlay-agents", m.ralph, overlay="agent", sizes=(SMALL, NORMAL)),
    State("overlay-graph", m.ralph, overlay="graph", sizes=(SMALL, NORMAL)),
    # questions
    State("question", lambda: _asked(m.branch_question()), keys=("f6",), sizes=_ALL, themes=_FOUR),
    State("question-other", lambda: _asked(m.branch_question()), keys=("f6", "4", "h", "o", "t"), sizes=_ALL),
    State("question-multi", lambda: _asked(m.tests_question()), keys=("f6", "down", "space"), sizes=_ALL),
    State("question-1-of-3", lambda: m.ralph(questions=m.three_questions()), keys=("f6",), sizes=_ALL),
    State("question-2-of-3", lambda: m.ralph(questions=m.three_questions()), keys=("f6", "tab")),
    State("question-3-of-3", lambda: m.ralph(questions=m.three_questions()), keys=("f6", "left"), sizes=_ALL),
    State("question-long", lambda: _asked(m.long_question()), keys=("f6",), sizes=_ALL),
    State("question-hostile", m.hostile, keys=("f6",)),
    # pickers
    State("pick-model", m.answered, lambda: PickScreen(m.models()), sizes=_ALL, themes=_FOUR),
    State("pick-filtered", m.chat, lambda: PickScreen(m.models()), tuple("soneet")),
    State("pick-nothing", m.chat, lambda: PickScreen(m.models()), tuple("zzzz")),
    State("pick-empty", m.chat, lambda: PickScreen(PickOpened(request="p", kind=PickKind.MCP, title="MCP servers"))),
    State("pick-session", m.chat, lambda: PickScreen(m.sessions()), sizes=_ALL),
    State("pick-session-end", m.chat, lambda: PickScreen(m.sessions()), ("up", "up", "up", "up")),
    State("pick-mcp", m.chat, lambda: PickScreen(m.servers()), ("down",)),
    State("pick-provider", m.chat, lambda: PickScreen(m.providers())),
    State("pick-theme", m.answered, lambda: PickScreen(m.themes()), themes=("dark",)),
    State("help", m.chat, lambda: HelpScreen(m.COMMANDS), sizes=_ALL, themes=_FOUR),
    State("keys", m.chat, lambda: KeysScreen(m.KEYS), sizes=_ALL),
    State("keys-scrolled", m.chat, lambda: KeysScreen(m.KEYS), ("pagedown",), sizes=(SMALL,)),
    State("palette", m.chat, lambda: PaletteScreen(m.COMMANDS, _ACTIONS), sizes=_ALL),
    State("palette-filtered", m.chat, lambda: PaletteScreen(m.COMMANDS, _ACTIONS), tuple("mod")),
]
