"""The screen as a person has it: what is sent, stopped, queued, asked and left."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from textual import events

from atomic.chat.protocol import (
    Activity,
    Answer,
    ChatNotice,
    Cleared,
    CommandInfo,
    CommandsListed,
    FilesFound,
    FindFiles,
    Interrupt,
    Leave,
    Left,
    Picked,
    PickKind,
    PickOpened,
    PickRow,
    QuestionClosed,
    QuestionOpened,
    RunKind,
    RunStarted,
    ScreenSize,
    Shell,
    StatusChanged,
    Submit,
    ThemeSet,
)
from atomic.config import Settings
from atomic.providers.events import PlanChanged, PlanItem
from atomic.questions import Option, Question
from atomic.tui.app import AtomicApp
from atomic.tui.key_bindings import TABLE
from atomic.tui.screens.question import QuestionScreen
from atomic.tui.state.model import EVERYTHING, RunState
from atomic.tui.state.store import Store
from atomic.tui.widgets.transcript import TranscriptView
from tests.timing import judge
from tests.tui.app.scripted_client import ScriptedLink, app_with, shown, until
from tests.tui.snapshots import samples as m

COMMANDS = CommandsListed(
    commands=(
        CommandInfo("help", "Show help", "builtin", ("h",), "[command]"),
        CommandInfo("model", "Choose a model", "builtin", ("m",), "select | <model>"),
        CommandInfo("ralph", "Work on tasks", "workflow", ("loop",), "<prompt>"),
    ),
    agents=(CommandInfo("planner", "Plans", "agent"),),
)


def question(id: str, text: str = "Which branch?") -> QuestionOpened:
    asked = Question(id=id, text=text, options=(Option("main"), Option("develop")))
    return QuestionOpened(id=id, run="", question=asked, who="worker")


def _stands(app: AtomicApp, *words: str) -> bool:
    return all(word in shown(app) for word in words)


def _stands_or_not(app: AtomicApp, does: bool, *words: str) -> bool:
    return _stands(app, *words) is does


def _written_to(written: list[str]) -> Callable[[object, str], None]:
    return lambda _, text: written.append(text)


def _is_asked(app: AtomicApp, words: str) -> bool:
    """Whether a question is open and takes keys."""
    return words in shown(app) and isinstance(app.screen, QuestionScreen) and app.screen.is_for(events.Event())


def last_line(app: AtomicApp) -> str:
    return shown(app).splitlines()[-1]


async def test_the_engine_starts_after_the_first_frame_and_gets_the_width() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=(90, 24)) as pilot:
        await until(pilot, lambda: link.sent)
        assert link.sent == [ScreenSize(width=85)]
        line = "x" * 84 + "y"
        link.say(ChatNotice(text=f"a list\n{line}"))
        await until(pilot, lambda: line in shown(app))
        await pilot.resize_terminal(70, 24)
        await until(pilot, lambda: ScreenSize(width=65) in link.sent)


async def test_a_sent_text_is_shown_at_once_and_its_answer_follows() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"hello", "enter")
        await until(pilot, lambda: "› hello" in shown(app))
        assert link.last(Submit).text == "hello"
        assert app.store.screen.is_busy

        run = link.begin()
        link.answer(run, "Good ")
        link.answer(run, "morning")
        await until(pilot, lambda: "Good morning" in shown(app))
        link.end(run)
        await until(pilot, lambda: "working" not in shown(app))
        assert not app.store.screen.is_busy


async def test_a_prompt_from_the_command_line_is_sent() -> None:
    link = ScriptedLink()
    async with app_with(link, prompt="from outside").run_test() as pilot:
        await until(pilot, lambda: link.all(Submit))
        assert link.last(Submit).text == "from outside"


async def test_a_shell_command_goes_to_the_shell() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test() as pilot:
        await pilot.press(*"!ls -l", "enter")
        await until(pilot, lambda: link.all(Shell))
        assert link.last(Shell).command == "ls -l"


# -- stopping


@pytest.mark.timed
async def test_esc_stops_at_once_and_a_second_esc_forces() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"go", "enter")
        run = link.begin()
        await until(pilot, lambda: app.store.screen.runs[run].state is not RunState.ENDED)
        before, spent = time.monotonic(), time.process_time()
        await pilot.press("escape")
        assert app.store.screen.runs[run].state is RunState.STOPPING
        judge(time.process_time() - spent, 0.2)
        await until(pilot, lambda: "stopping" in last_line(app))
        judge(time.monotonic() - before, 2.0)  # a generous wall clock; the frame clock holds back 0.2 s at most
        assert link.last(Interrupt) == Interrupt(run=run)

        await pilot.press("escape")
        assert link.last(Interrupt) == Interrupt(run=run, force=True)
        link.end(run, "interrupted")
        await until(pilot, lambda: "stopping" not in last_line(app))


async def test_esc_works_before_the_engine_has_started_the_run() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test() as pilot:
        await pilot.press(*"go", "enter", "escape")
        await until(pilot, lambda: link.all(Interrupt))
        assert link.last(Interrupt).run == link.last(Submit).run


async def test_a_run_that_ends_during_another_leaves_no_spinner() -> None:
    """The old freeze: a reviewer ends while another is active, and nobody hears of it."""
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test() as pilot:
        await until(pilot, lambda: link.sent)
        link.say(*(RunStarted(run=run, kind=RunKind.AGENTS, title=run) for run in ("worker", "reviewer")))
        await until(pilot, lambda: len(app.store.screen.runs) == 2)
        for run in ("reviewer", "reviewer", "worker"):  # one of them twice
            link.end(run)
        await until(pilot, lambda: not app.store.screen.is_busy)
        await until(pilot, lambda: "send" in last_line(app))
        link.answer("worker", "too late")
        await pilot.pause(0.2)
        assert "too late" not in shown(app)


async def test_an_idle_screen_paints_nothing() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test() as pilot:
        await pilot.press(*"go", "enter")
        run = link.begin()
        link.end(run)
        await until(pilot, lambda: not app.store.screen.is_busy)
        await pilot.pause(1.2)  # the last tick of the durations
        assert app.frames.is_idle


async def test_reduced_motion_counts_no_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOMIC_REDUCED_MOTION", "1")
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test() as pilot:
        await pilot.press(*"go", "enter")
        await until(pilot, lambda: "working" in last_line(app) or "starting" in last_line(app))
        assert not app.frames.is_ticking


# -- Ctrl+C


async def test_ctrl_c_closes_then_stops_then_clears_then_reminds(tmp_path: Path) -> None:
    now = [1000.0]
    link = ScriptedLink()
    app = app_with(link, home=tmp_path, clock=lambda: now[0])

    async def press() -> None:
        now[0] += 5.0
        await pilot.press("ctrl+c")
        now[0] += 5.0

    async with app.run_test() as pilot:
        link.say(COMMANDS)
        await pilot.press(*"go", "enter")
        run = link.begin()
        await pilot.press("/")
        now[0] += 1
        await until(pilot, lambda: "Work on tasks" in shown(app))
        await press()
        assert "Work on tasks" not in shown(app)
        assert not link.all(Interrupt)
        await press()
        assert link.last(Interrupt) == Interrupt(run=run)
        link.end(run, "interrupted")
        await until(pilot, lambda: not app.store.screen.is_busy)
        await press()
        assert app.prompt.is_empty
        await pilot.press("up")
        assert app.prompt.text == "/"
        await pilot.press("backspace", "ctrl+c")
        await pilot.pause(0.1)
        assert "Ctrl+C again leaves" in last_line(app)
        now[0] += 1.5  # slower than twice within a second, and still in time
        await pilot.press("ctrl+c")
        await pilot.pause()
    assert link.all(Leave)
    assert link.is_closed


async def test_typing_after_the_reminder_cancels_leaving() -> None:
    link, now = ScriptedLink(), [1000.0]
    app = app_with(link, clock=lambda: now[0])
    async with app.run_test() as pilot:
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "Ctrl+C again leaves" in last_line(app))
        now[0] += 0.5
        await pilot.press(*"text")
        await until(pilot, lambda: "again leaves" not in last_line(app))
        now[0] += 1
        await pilot.press("ctrl+c")
        await pilot.pause(0.1)
        assert app.prompt.is_empty
        assert app.is_running
        assert not link.all(Leave)


async def test_clearing_the_prompt_twice_with_letters_between_does_not_leave() -> None:
    link = ScriptedLink()
    app = app_with(link, clock=lambda: 1000.0)
    async with app.run_test() as pilot:
        await pilot.press(*"abc", "ctrl+c", *"def", "ctrl+c")
        await pilot.pause(0.1)
        assert app.is_running
        assert not link.all(Leave)


async def test_the_pill_names_the_key_that_scrolls_to_the_end() -> None:
    link = ScriptedLink()
    app = app_with(link, settings=Settings(keys={"scroll_end": ["alt+g"]}))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"go", "enter")
        run = link.begin()
        link.answer(run, "".join(f"P{number}\n\n" for number in range(60)))
        await until(pilot, lambda: "P59" in shown(app))
        await pilot.press("pageup")
        link.answer(run, "One more.\n\n")
        await until(pilot, lambda: "new · Alt+G" in shown(app))
        await pilot.press("alt+g")
        await until(pilot, lambda: "One more." in shown(app))
        assert "new ·" not in shown(app)


async def test_a_selection_dragged_into_the_header_ends_at_the_first_visible_line() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"go", "enter")
        run = link.begin()
        link.answer(run, "".join(f"P{number}\n\n" for number in range(200)))
        await until(pilot, lambda: "P199" in shown(app))
        await pilot.mouse_down(offset=(10, 12))
        await pilot.hover(offset=(10, 0))
        await pilot.mouse_up(offset=(10, 0))
        copied = app.transcript.selected_text().split()
        assert 3 < len(copied) <= 12, copied


@pytest.mark.parametrize("state", ["idle", "text", "busy", "dialog"])
async def test_ctrl_c_twice_within_a_second_leaves_from_any_state(state: str) -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test() as pilot:
        await until(pilot, lambda: link.sent)
        if state == "text":
            await pilot.press(*"some text")
        elif state == "busy":
            await pilot.press(*"go", "enter")
        elif state == "dialog":
            await pilot.press("f1")
            await until(pilot, lambda: len(app.screen_stack) > 1)
        await pilot.press("ctrl+c", "ctrl+c")
        await until(pilot, lambda: not app.is_running)
    assert link.is_closed
    assert link.all(Leave) == [Leave()]


# -- leaving


async def test_ctrl_d_leaves_with_the_engines_last_message() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test() as pilot:
        await pilot.press("x", "ctrl+d")
        assert not link.all(Leave)  # only on the empty prompt
        await pilot.press("backspace", "ctrl+d")
        assert link.all(Leave) == [Leave(pause=True)]
        link.say(Left(message="go on with: atomic chat --resume abc"))
        await until(pilot, lambda: not app.is_running)
    assert app.return_value == "go on with: atomic chat --resume abc"
    assert link.is_closed


async def test_an_exit_command_closes_the_screen() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test() as pilot:
        await until(pilot, lambda: link.sent)
        link.say(Left(message="bye"))
        await until(pilot, lambda: not app.is_running)
    assert app.return_value == "bye"


async def test_keys_without_an_action_do_not_leave() -> None:
    app = app_with(ScriptedLink())
    async with app.run_test() as pilot:
        await pilot.press("ctrl+q", "ctrl+s", "shift+tab", *"still here")
        await pilot.pause(0.1)
        assert app.is_running
        assert app.prompt.text == "still here"


async def test_a_signal_pauses_runs_and_ends_the_engine() -> None:
    link = ScriptedLink()
    link.on_send = lambda intent: link.say(Left(message="bye")) if isinstance(intent, Leave) else None
    app = app_with(link)
    async with app.run_test() as pilot:
        await until(pilot, lambda: link.sent)
        app.exit(None, 129)
    assert link.is_closed
    assert link.all(Leave) == [Leave(pause=True)]


async def test_a_crashed_screen_leaves_runs_running() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test() as pilot:
        await until(pilot, lambda: link.sent)
        app.exit(None, 1)
    assert link.is_closed
    assert link.all(Leave) == [Leave()]


# -- the queue


async def test_queued_texts_are_shown_edited_and_sent_one_by_one() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"first", "enter")
        run = link.begin()
        await pilot.press(*"second", "enter", *"third", "enter")
        await until(pilot, lambda: "1 second" in shown(app) and "2 third" in shown(app))
        assert [sent.text for sent in link.all(Submit)] == ["first"]

        await pilot.press("up")
        await until(pilot, lambda: app.prompt.text == "third")
        await pilot.press(*" edited", "enter")
        link.end(run)
        await until(pilot, lambda: len(link.all(Submit)) == 2)
        await pilot.pause(0.2)
        assert [sent.text for sent in link.all(Submit)] == ["first", "second"]
        link.end(link.begin())
        await until(pilot, lambda: len(link.all(Submit)) == 3)
        assert link.last(Submit).text == "third edited"
        await until(pilot, lambda: "edits" not in shown(app))


async def test_the_queue_waits_after_a_failure_and_continues_after_a_success() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=(100, 24), notifications=True) as pilot:
        await pilot.press(*"first", "enter")
        run = link.begin()
        await pilot.press(*"second", "enter")
        link.end(run, "failed")
        await until(pilot, lambda: "the queue waits" in shown(app))
        assert len(link.all(Submit)) == 1
        await pilot.press(*"again", "enter")
        await until(pilot, lambda: len(link.all(Submit)) == 2)
        link.end(link.begin())
        await until(pilot, lambda: len(link.all(Submit)) == 3)
        assert [sent.text for sent in link.all(Submit)] == ["first", "again", "second"]


async def test_screen_commands_skip_the_queue_and_workflows_do_not_block_it() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test() as pilot:
        await pilot.press(*"first", "enter")
        link.begin()
        await pilot.press(*"/help", "enter")
        await until(pilot, lambda: [sent.text for sent in link.all(Submit)] == ["first", "/help"])
        for sent in link.all(Submit):
            link.end(sent.run)
        link.say(RunStarted(run="w", kind=RunKind.WORKFLOW, title="ralph", session="s"))
        await until(pilot, lambda: list(app.store.screen.runs.values())[-1].kind is RunKind.WORKFLOW)
        await pilot.press(*"second", "enter")
        await until(pilot, lambda: link.last(Submit).text == "second")


async def test_the_empty_screen_names_the_agent_once_it_is_ready() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test() as pilot:
        await until(pilot, partial(_stands, app, "Ask the agent for something"))
        link.say(StatusChanged(provider="claude", ready=True))
        await until(pilot, partial(_stands, app, "Ask claude for something"))


async def test_the_last_line_shows_the_effect_of_esc() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"go", "enter")
        link.say(COMMANDS)
        plan = PlanChanged((PlanItem("Read it", "in_progress"),))
        link.say(Activity(run=link.begin(), event=plan))
        await until(pilot, lambda: "Esc stops" in shown(app) and "0/1" in shown(app))
        await pilot.press("ctrl+t")
        await until(pilot, lambda: "plan 0/1" in shown(app) and "Esc close" in shown(app))
        assert "Esc stops" not in shown(app)
        await pilot.press("escape")
        await until(pilot, lambda: "Esc stops" in shown(app))
        await pilot.press("/")
        await until(pilot, lambda: "Esc close" in shown(app))
        assert "Esc stops" not in shown(app)
        assert not link.all(Interrupt)


async def test_the_graph_gets_the_rows_left_by_other_panels() -> None:
    app = app_with(ScriptedLink())
    async with app.run_test(size=(120, 40)) as pilot:
        for tasks, is_whole in ((m.four_tasks(), True), (m.many_tasks(), False)):
            app.store = Store(m.ralph(tasks=tasks))
            app.frames.mark(EVERYTHING)
            heading = f"/{len(tasks)} ─"
            await until(pilot, partial(_stands, app, "work ▶ (3)", heading))
            await until(pilot, partial(_stands_or_not, app, is_whole, "again", "◉ end"))


async def test_the_engine_knows_the_width_of_a_line() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"go", "enter")
        run = link.begin()
        width = link.last(ScreenSize).width
        link.say(ChatNotice(text="x" * width + "\n" + "y" * (width + 1), run=run))
        link.say(*(ChatNotice(text=f"{number}", run=run) for number in range(20)))
        await until(pilot, lambda: "19" in shown(app))
        await pilot.press("ctrl+home")
        await until(pilot, lambda: "x" * width in shown(app))  # with a scrollbar too
        assert "y" * (width + 1) not in shown(app)


# -- questions and pickers


async def test_a_question_opens_by_itself_and_its_answer_is_sent() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: link.sent)
        link.say(question("q1"), question("q2", "Sure?"))
        await until(pilot, lambda: _is_asked(app, "Which branch?"))
        await pilot.press("2")
        assert not link.all(Answer)  # it is chosen, as the footer says; Enter answers
        await pilot.press("enter")
        await until(pilot, lambda: link.all(Answer))
        assert link.last(Answer) == Answer(question="q1", answers=("develop",))
        await until(pilot, lambda: _is_asked(app, "Sure?"))
        await pilot.press("escape")
        await until(pilot, lambda: len(link.all(Answer)) == 2)
        assert link.last(Answer) == Answer(question="q2", answers=None)
        await until(pilot, lambda: len(app.screen_stack) == 1)


async def test_keys_typed_before_a_question_is_shown_do_not_answer_it() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: link.sent)
        link.say(question("q1"), question("q2", "Sure?"))
        await until(pilot, lambda: _is_asked(app, "Which branch?"))
        for key in ("enter", "enter", "2", "enter"):  # all of them before the next question is there
            app.post_message(events.Key(key, None))
        await until(pilot, lambda: _is_asked(app, "Sure?"))
        await pilot.pause(0.2)
        assert link.all(Answer) == [Answer(question="q1", answers=("main",))]
        await pilot.press("enter")
        await until(pilot, lambda: len(link.all(Answer)) == 2)


async def test_a_question_does_not_take_letters_meant_for_the_prompt() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"I am typ")
        link.say(question("q1"))
        await until(pilot, lambda: "1 question waits" in shown(app))
        await pilot.press(*"ing 1")
        assert app.prompt.text == "I am typing 1"
        await pilot.press("f6")
        await until(pilot, lambda: len(app.screen_stack) == 2)
        link.say(QuestionClosed(id="q1"))
        await until(pilot, lambda: len(app.screen_stack) == 1)
        assert not link.all(Answer)


async def test_a_question_right_after_a_key_opens_a_moment_later() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"go", "enter")
        link.begin()
        link.say(question("q1"))
        await until(pilot, lambda: "q1" in app.store.screen.questions)
        assert len(app.screen_stack) == 1
        await until(pilot, lambda: _is_asked(app, "Which branch?"))
        await pilot.press("enter")
        assert link.last(Answer) == Answer(question="q1", answers=("main",))


async def test_a_postponed_question_stays_closed() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test() as pilot:
        await until(pilot, lambda: link.sent)
        link.say(question("q1"), question("q2"))
        await until(pilot, lambda: _is_asked(app, "Which branch?"))
        await pilot.press("f6")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        link.say(QuestionClosed(id="q2"))
        await until(pilot, lambda: len(app.store.screen.questions) == 1)
        await pilot.pause(0.2)
        assert len(app.screen_stack) == 1


async def test_remapped_keys_work_in_dialogs() -> None:
    link = ScriptedLink()
    app = app_with(link, settings=Settings(keys={"stop": ("f9",), "questions": ("f8",)}))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        await until(pilot, lambda: len(app.screen_stack) == 2)
        await pilot.press("f9")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        link.say(question("q1"))
        await until(pilot, lambda: _is_asked(app, "F8 later"))
        await pilot.press("f8")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        await pilot.press("f8")
        await until(pilot, lambda: len(app.screen_stack) == 2)
        await pilot.press("f9")
        await until(pilot, lambda: link.all(Answer))
        assert link.last(Answer) == Answer(question="q1", answers=None)


async def test_a_picker_sends_the_chosen_row() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test() as pilot:
        await pilot.press("f2")
        await until(pilot, lambda: link.all(Submit))
        assert link.last(Submit).text == "/model"
        rows = (PickRow("opus", "Opus", current=True), PickRow("sonnet", "Sonnet"))
        link.say(PickOpened(request="p1", kind=PickKind.MODEL, title="Models", rows=rows))
        await until(pilot, lambda: len(app.screen_stack) == 2)
        await pilot.press("down", "enter")
        await until(pilot, lambda: link.all(Picked))
        assert link.last(Picked) == Picked(request="p1", value="sonnet")
        link.say(PickOpened(request="p2", kind=PickKind.MODEL, title="Models", rows=rows))
        await until(pilot, lambda: len(app.screen_stack) == 2)
        await pilot.press("escape")
        await until(pilot, lambda: len(link.all(Picked)) == 2)
        assert link.last(Picked) == Picked(request="p2", value=None)


# -- keys


async def test_keys_are_remapped_and_mistakes_in_them_are_reported() -> None:
    link = ScriptedLink()
    settings = Settings(keys={"keys": ["f9"], "nope": ["f8"]}, warnings=("config.toml: something",))
    app = app_with(link, settings=settings)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await until(pilot, lambda: "keys.nope: there is no such action" in shown(app))
        assert "config.toml: something" in shown(app)
        await pilot.press("question_mark")
        assert app.prompt.text == "?"
        await pilot.press("backspace", "f9")
        await until(pilot, lambda: len(app.screen_stack) == 2)


async def test_a_question_mark_lists_the_keys_only_on_the_empty_prompt() -> None:
    app = app_with(ScriptedLink())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("question_mark")
        await until(pilot, lambda: "Keys" in shown(app) and "Ctrl+C" in shown(app))
        keys = sum(len(action.keys) for action in TABLE)
        assert any(row.strip("│ ").split() == ["Keys", str(keys)] for row in shown(app).splitlines())
        await pilot.press("escape", *"what?")
        assert app.prompt.text == "what?"


async def test_the_palette_runs_commands_and_actions() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=(100, 30)) as pilot:
        link.say(COMMANDS)
        await until(pilot, lambda: app.store.screen.commands)
        await pilot.press("ctrl+p")
        await until(pilot, lambda: len(app.screen_stack) == 2)
        await pilot.press(*"/ralph", "enter")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        assert app.prompt.text == "/ralph "
        await pilot.press("ctrl+c", "ctrl+p")
        await until(pilot, lambda: len(app.screen_stack) == 2)
        await pilot.press(*"/help", "enter")
        await until(pilot, lambda: link.all(Submit))
        assert link.last(Submit).text == "/help"


async def test_the_transcript_is_read_block_by_block() -> None:
    link = ScriptedLink()
    app = app_with(link)
    copied: list[str] = []
    app.desktop.copy = lambda text, if_empty: copied.append(text)
    async with app.run_test() as pilot:
        await until(pilot, lambda: link.sent)
        link.say(ChatNotice(text="one"), ChatNotice(text="two"), ChatNotice(text="three"))
        await until(pilot, lambda: "three" in shown(app))
        await pilot.press("ctrl+o", "y", "k", "y", "g", "y", "j", "y", "G", "y", "x")
        assert copied == ["three", "two", "one", "two", "three"]
        await pilot.press("q", *"jy")
        assert app.prompt.text == "jy"


async def test_the_last_answer_is_copied_and_the_screen_reports_how(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMUX", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    link = ScriptedLink()
    app = app_with(link)
    written: list[str] = []
    monkeypatch.setattr("atomic.tui.compat.write", _written_to(written))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("ctrl+y")
        await until(pilot, lambda: "There is no answer yet" in shown(app))
        await pilot.press(*"go", "enter")
        run = link.begin()
        link.answer(run, "the **answer**")
        link.end(run)
        await until(pilot, lambda: "the answer" in shown(app))
        await pilot.press("ctrl+y")
        await until(pilot, lambda: "Copied by the terminal (OSC 52)" in shown(app))
        assert "\x1b]52;c;dGhlICoqYW5zd2VyKio=\x07" in written


async def test_a_link_never_opens_a_program_in_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    opened: list[str] = []
    copied: list[str] = []
    app = app_with(ScriptedLink())
    app.open_url = lambda url, new_tab=True: opened.append(url)
    app.desktop.copy = lambda text, if_empty: copied.append(text)
    async with app.run_test(notifications=True) as pilot:
        view = app.query_one(TranscriptView)
        view.post_message(TranscriptView.LinkOpened("https://example.com/a"))
        view.post_message(TranscriptView.LinkOpened("file:///etc/passwd"))
        await until(pilot, lambda: "file:///etc/passwd" in shown(app))
        assert (opened, copied) == ([], ["https://example.com/a"])
        monkeypatch.setenv("DISPLAY", ":0")
        view.post_message(TranscriptView.LinkOpened("https://example.com/b"))
        await until(pilot, lambda: opened == ["https://example.com/b"])


async def test_the_terminal_notifies_an_absent_user_when_a_turn_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TERM_PROGRAM", raising=False)
    link = ScriptedLink()
    app = app_with(link)
    written: list[str] = []
    monkeypatch.setattr("atomic.tui.compat.write", _written_to(written))
    async with app.run_test() as pilot:
        await pilot.press(*"one", "enter")
        link.end(link.begin())
        await until(pilot, lambda: not app.store.screen.is_busy)
        await pilot.pause(0.2)
        assert not any("\x07" in words for words in written)  # it was looked at
        await pilot.press(*"two", "enter")
        run = link.begin()
        app.app_focus = False
        link.end(run)
        await until(pilot, lambda: any("done" in words for words in written))
        assert written[-1].startswith("\x07")
        assert "\x1b]0;● Atomic is done\x07" in written[-1]


async def test_the_terminal_notifies_an_absent_user_when_a_workflow_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TERM_PROGRAM", raising=False)
    link = ScriptedLink()
    app = app_with(link)
    written: list[str] = []
    monkeypatch.setattr("atomic.tui.compat.write", _written_to(written))
    async with app.run_test() as pilot:
        await pilot.press(*"/ralph it", "enter")
        app.app_focus = False
        run = link.last(Submit).run
        link.say(RunStarted(run=run, kind=RunKind.WORKFLOW, title="ralph", session="s-1"))
        await until(pilot, lambda: app.store.screen.runs[run].kind is RunKind.WORKFLOW)
        await pilot.pause(0.2)
        assert not any("\x07" in words for words in written)
        link.end(run, "completed")
        await until(pilot, lambda: any("\x07" in words for words in written))
        assert "\x1b]0;● Atomic: ralph completed\x07" in written[-1]


async def test_files_are_offered_for_the_latest_letters() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=(80, 24)) as pilot:
        link.say(COMMANDS)
        await pilot.press(*"see @sr")
        await until(pilot, lambda: len(link.all(FindFiles)) == 3)
        late, last = link.all(FindFiles)[1], link.last(FindFiles)
        link.say(FilesFound(request=last.request, paths=("src/app.py", "src/b.py")))
        link.say(FilesFound(request=late.request, paths=("nonsense",)))
        await until(pilot, lambda: "@src/app.py" in shown(app))
        assert "nonsense" not in shown(app)
        await pilot.press("down", "tab")
        assert app.prompt.text == "see @src/b.py "
        assert "app.py" not in shown(app)


async def test_a_theme_is_set_and_an_unknown_one_is_reported() -> None:
    link = ScriptedLink()
    app = app_with(link, theme="light")
    async with app.run_test(notifications=True) as pilot:
        await until(pilot, lambda: app.theme == "atomic-light")
        link.say(ThemeSet(name="contrast"))
        await until(pilot, lambda: app.theme == "atomic-contrast")
        link.say(ThemeSet(name="pink"))
        await until(pilot, lambda: 'There is no theme "pink"' in shown(app))


@pytest.mark.parametrize("terminal", ["linux", "screen", "xterm"])
async def test_a_terminal_with_16_colours_gets_the_ansi_theme(monkeypatch: pytest.MonkeyPatch, terminal: str) -> None:
    monkeypatch.setenv("COLORTERM", "")
    monkeypatch.setenv("TERM", terminal)
    app = app_with(ScriptedLink())
    async with app.run_test():
        assert app.theme == "atomic-ansi"


async def test_a_shell_command_is_shown_as_running() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test() as pilot:
        await pilot.press(*"!sleep 30", "enter")
        await until(pilot, lambda: "running" in last_line(app))
        link.say(RunStarted(run=link.last(Shell).run, kind=RunKind.SHELL, prompt="!sleep 30"))
        await pilot.pause(0.1)
        assert "starting" not in last_line(app)


async def test_a_late_background_colour_changes_the_theme_unless_one_was_chosen() -> None:
    app = app_with(ScriptedLink())
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.theme == "atomic-dark")
        app.set_background("rgb:ffff/ffff/ffff")
        assert app.theme == "atomic-light"
    chosen = app_with(ScriptedLink(), theme="dark")
    async with chosen.run_test():
        chosen.set_background("rgb:ffff/ffff/ffff")
        assert chosen.theme == "atomic-dark"


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize(("key", "words"), [("ctrl+t", "No tasks yet"), ("f6", "No question waits")])
async def test_esc_closes_an_empty_panel_and_stops_no_run(size: tuple[int, int], key: str, words: str) -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.press(*"go", "enter")
        link.begin()
        await until(pilot, lambda: "Esc stops" in shown(app))
        await pilot.press(key)
        await until(pilot, lambda: words in shown(app))
        await until(pilot, lambda: "Esc stops" not in shown(app))
        await pilot.press("escape")
        await until(pilot, lambda: words not in shown(app) and "Esc stops" in shown(app))
        assert not link.all(Interrupt)
        await pilot.press(key, "x", "backspace", "escape")  # other keys end it
        await until(pilot, lambda: bool(link.all(Interrupt)))


async def test_esc_reopens_a_panel_closed_by_the_previous_key() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(*"go", "enter")
        link.say(Activity(run=link.begin(), event=PlanChanged((PlanItem("the first step"),))))
        await until(pilot, lambda: app.panels.side.display)
        await pilot.press("ctrl+t")
        await until(pilot, lambda: not app.panels.side.display)
        await pilot.press("escape")
        await until(pilot, lambda: app.panels.side.display)
        assert not link.all(Interrupt)
        await pilot.press("ctrl+t", "ctrl+t", "escape")  # as it was: nothing to return from
        await until(pilot, lambda: bool(link.all(Interrupt)))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 12)])
async def test_panels_are_next_to_a_wide_transcript_and_cover_a_narrow_one(size: tuple[int, int]) -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test(size=size) as pilot:
        await pilot.press(*"go", "enter")
        link.say(Activity(run=link.begin(), event=PlanChanged((PlanItem("the first step"),))))
        is_beside = size[0] >= 100
        await until(pilot, lambda: "the first step" in shown(app))
        assert app.panels.side.display is is_beside
        await pilot.press("ctrl+t")
        await until(pilot, lambda: app.panels.side.display is not is_beside)
        assert app.transcript.display is is_beside
        await pilot.press("escape" if not is_beside else "ctrl+t")
        await until(pilot, lambda: app.panels.side.display is is_beside)
        assert not link.all(Interrupt)


async def test_a_new_conversation_is_empty() -> None:
    link = ScriptedLink()
    app = app_with(link)
    async with app.run_test() as pilot:
        await until(pilot, lambda: link.sent)
        link.say(ChatNotice(text="something old"))
        await until(pilot, lambda: "something old" in shown(app))
        link.say(Cleared(session="new"))
        await until(pilot, lambda: "something old" not in shown(app))
