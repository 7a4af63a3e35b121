"""All states with reference files."""

from __future__ import annotations

from atomic.chat.protocol import PickKind, PickOpened
from atomic.questions import Question
from atomic.tui.screens.lists import HelpScreen, KeysScreen, PaletteScreen, PickScreen
from atomic.tui.state.model import QuestionEntry, RunState, Screen
from tests.tui.snapshots import samples
from tests.tui.snapshots.capture import LARGE, NORMAL, SMALL, State

_ALL = (SMALL, NORMAL, LARGE)
_FOUR = ("dark", "light", "ansi", "contrast")
_ACTIONS = [
    ("tasks", "Show the tasks", "Ctrl+T"),
    ("copy_answer", "Copy the last answer", "Ctrl+Y"),
    ("model", "Choose a model", "F2"),
]


def _queue(screen: Screen) -> Screen:
    screen.queue = samples.queued("Then run the linter", "And write the changelog:\n- the fix\n- the test", "漢" * 100)
    return screen


def _everything() -> Screen:
    """Return a workflow, an active conversation, a queue and questions."""
    screen = samples.ralph(
        questions=samples.three_questions(), queue=samples.queued("Then run the linter"), tasks=samples.many_tasks()
    )
    talk = samples.streaming()
    talk.blocks[0].gap = True
    screen.blocks = samples.answered().blocks + talk.blocks
    screen.runs |= talk.runs
    return screen


def _with_question(question: Question, who: str = "worker#4") -> Screen:
    return samples.ralph(questions={"q1": QuestionEntry("q1", "w1", question, who)})


STATES = [
    # the screen without a conversation
    State("start", Screen, sizes=_ALL),
    State("no-agent", lambda: samples.screen_after(samples.NO_AGENT, screen=Screen()), sizes=_ALL),
    State("idle", samples.chat, sizes=_ALL, themes=_FOUR),
    State("quiet", lambda: samples.chat(runs={"t1": samples.turn(seconds=3700, quiet=48)})),
    State("stopping", lambda: samples.chat(runs={"t1": samples.turn(RunState.STOPPING)}), sizes=_ALL),
    State("plan", lambda: samples.chat(runs={"t1": samples.turn()}, plan=samples.plan())),
    # the transcript
    State("answer", samples.answered, sizes=_ALL, themes=_FOUR),
    State("answer-top", samples.answered, keys=("ctrl+home",)),
    State("markdown", samples.markdown, sizes=_ALL),
    State("markdown-top", samples.markdown, keys=("ctrl+home",), sizes=_ALL),
    State("unfolded", samples.unfolded, sizes=_ALL, themes=_FOUR),
    State(
        "new-below",
        samples.answered,
        keys=("ctrl+home",),
        later=samples.add_answer,
        sizes=(SMALL, NORMAL),
        themes=_FOUR,
    ),
    State("streaming", samples.streaming, sizes=_ALL),
    State("error", samples.errors, sizes=_ALL, themes=_FOUR),
    State("long-line", samples.long_line, sizes=_ALL),
    State("shell", samples.shell),
    State("called-agents", samples.called_agents),
    State("hostile", samples.hostile, sizes=_ALL),
    # the prompt
    State("typing", samples.chat, keys=(*"Hello", "ctrl+j", *"you"), sizes=_ALL),
    State("typing-wide", samples.chat, paste="漢字 and ﾊﾝｶｸ and é"),
    State("paste", samples.chat, paste="line of a big paste\n" * 5_200, sizes=_ALL),
    State("popup", samples.answered, keys=("/",), sizes=_ALL, themes=_FOUR),
    State("popup-filtered", samples.answered, keys=tuple("/re")),
    State("hint", samples.answered, keys=(*"/ral", "tab"), sizes=_ALL),
    State("queue", lambda: _queue(samples.streaming()), sizes=_ALL),
    # workflows
    State("ralph", samples.ralph, sizes=_ALL, themes=_FOUR),
    State("everything", _everything, sizes=_ALL, themes=_FOUR),
    State("statuses", lambda: samples.ralph(tasks=samples.all_statuses())),
    State("tasks-200", lambda: samples.ralph(tasks=samples.many_tasks()), sizes=_ALL),
    State("agents-8", lambda: samples.ralph(agents=samples.agents(8))),
    State("agents-40", lambda: samples.ralph(agents=samples.agents(40))),
    State("questions-3", lambda: samples.ralph(questions=samples.three_questions()), sizes=_ALL),
    State("paused", lambda: samples.ended_workflow("paused", "Paused by the person.", "atomic resume 9f8e7d6c")),
    State("completed", lambda: samples.ended_workflow("completed", "All tasks are done and reviewed.")),
    State("overlay-tasks", lambda: samples.ralph(tasks=samples.many_tasks()), overlay="task", sizes=(SMALL, NORMAL)),
    State("overlay-agents", samples.ralph, overlay="agent", sizes=(SMALL, NORMAL)),
    State("overlay-graph", samples.ralph, overlay="graph", sizes=(SMALL, NORMAL)),
    # questions
    State("question", lambda: _with_question(samples.branch_question()), keys=("f6",), sizes=_ALL, themes=_FOUR),
    State(
        "question-other", lambda: _with_question(samples.branch_question()), keys=("f6", "4", "h", "o", "t"), sizes=_ALL
    ),
    State("question-multi", lambda: _with_question(samples.tests_question()), keys=("f6", "down", "space"), sizes=_ALL),
    State("question-1-of-3", lambda: samples.ralph(questions=samples.three_questions()), keys=("f6",), sizes=_ALL),
    State("question-2-of-3", lambda: samples.ralph(questions=samples.three_questions()), keys=("f6", "tab")),
    State(
        "question-3-of-3", lambda: samples.ralph(questions=samples.three_questions()), keys=("f6", "left"), sizes=_ALL
    ),
    State("question-long", lambda: _with_question(samples.long_question()), keys=("f6",), sizes=_ALL),
    State("question-hostile", samples.hostile, keys=("f6",)),
    # pickers
    State("pick-model", samples.answered, lambda: PickScreen(samples.models()), sizes=_ALL, themes=_FOUR),
    State("pick-filtered", samples.chat, lambda: PickScreen(samples.models()), tuple("soneet")),
    State("pick-nothing", samples.chat, lambda: PickScreen(samples.models()), tuple("zzzz")),
    State(
        "pick-empty", samples.chat, lambda: PickScreen(PickOpened(request="p", kind=PickKind.MCP, title="MCP servers"))
    ),
    State("pick-session", samples.chat, lambda: PickScreen(samples.sessions()), sizes=_ALL),
    State("pick-session-end", samples.chat, lambda: PickScreen(samples.sessions()), ("up", "up", "up", "up")),
    State("pick-mcp", samples.chat, lambda: PickScreen(samples.servers()), ("down",)),
    State("pick-provider", samples.chat, lambda: PickScreen(samples.providers())),
    State("pick-theme", samples.answered, lambda: PickScreen(samples.themes()), themes=("dark",)),
    State("help", samples.chat, lambda: HelpScreen(samples.COMMANDS), sizes=_ALL, themes=_FOUR),
    State("keys", samples.chat, lambda: KeysScreen(samples.KEYS), sizes=_ALL),
    State("keys-scrolled", samples.chat, lambda: KeysScreen(samples.KEYS), ("pagedown",), sizes=(SMALL,)),
    State("palette", samples.chat, lambda: PaletteScreen(samples.COMMANDS, _ACTIONS), sizes=_ALL),
    State("palette-filtered", samples.chat, lambda: PaletteScreen(samples.COMMANDS, _ACTIONS), tuple("mod")),
]
