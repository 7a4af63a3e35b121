"""The whole screen, used with keys: send, stop, queue, answer and leave."""

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
from tests.support.timing import judge
from tests.tui.app.scripted_client import ScriptedClient, app_with, shown, until
from tests.tui.snapshots import samples

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


def _shows(app: AtomicApp, *words: str) -> bool:
    return all(word in shown(app) for word in words)


def _shows_or_not(app: AtomicApp, does: bool, *words: str) -> bool:
    return _shows(app, *words) is does


def _append_to(written: list[str]) -> Callable[[object, str], None]:
    return lambda _, text: written.append(text)


def _is_question_open(app: AtomicApp, words: str) -> bool:
    """Return whether a question dialog with these words is open and takes keys."""
    return words in shown(app) and isinstance(app.screen, QuestionScreen) and app.screen.is_for(events.Event())


def last_line(app: AtomicApp) -> str:
    return shown(app).splitlines()[-1]


async def test_the_engine_starts_after_the_first_frame_and_gets_the_width() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(90, 24)) as pilot:
        await until(pilot, lambda: client.sent)
        assert client.sent == [ScreenSize(width=85)]
        line = "x" * 84 + "y"
        client.emit(ChatNotice(text=f"a list\n{line}"))
        await until(pilot, lambda: line in shown(app))
        await pilot.resize_terminal(70, 24)
        await until(pilot, lambda: ScreenSize(width=65) in client.sent)


async def test_a_sent_text_is_shown_at_once_and_its_answer_follows() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"hello", "enter")
        await until(pilot, lambda: "› hello" in shown(app))
        assert client.last(Submit).text == "hello"
        assert app.store.screen.is_busy

        run = client.begin()
        client.answer(run, "Good ")
        client.answer(run, "morning")
        await until(pilot, lambda: "Good morning" in shown(app))
        client.end(run)
        await until(pilot, lambda: "working" not in shown(app))
        assert not app.store.screen.is_busy


async def test_a_prompt_from_the_command_line_is_sent() -> None:
    client = ScriptedClient()
    async with app_with(client, prompt="from outside").run_test() as pilot:
        await until(pilot, lambda: client.all(Submit))
        assert client.last(Submit).text == "from outside"


async def test_a_shell_command_goes_to_the_shell() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await pilot.press(*"!ls -l", "enter")
        await until(pilot, lambda: client.all(Shell))
        assert client.last(Shell).command == "ls -l"


# Stop.


@pytest.mark.timed
async def test_esc_stops_at_once_and_a_second_esc_forces() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"go", "enter")
        run = client.begin()
        await until(pilot, lambda: app.store.screen.runs[run].state is not RunState.ENDED)
        before = time.monotonic()
        spent = time.process_time()
        await pilot.press("escape")
        assert app.store.screen.runs[run].state is RunState.STOPPING
        judge(time.process_time() - spent, 0.2)
        await until(pilot, lambda: "stopping" in last_line(app))
        # The frame clock delays a frame by at most 0.2 s; the limit is generous.
        judge(time.monotonic() - before, 2.0)
        assert client.last(Interrupt) == Interrupt(run=run)

        await pilot.press("escape")
        assert client.last(Interrupt) == Interrupt(run=run, force=True)
        client.end(run, "interrupted")
        await until(pilot, lambda: "stopping" not in last_line(app))


async def test_esc_works_before_the_engine_has_started_the_run() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await pilot.press(*"go", "enter", "escape")
        await until(pilot, lambda: client.all(Interrupt))
        assert client.last(Interrupt).run == client.last(Submit).run


async def test_a_run_that_ends_during_another_leaves_no_spinner() -> None:
    """Guard against an old freeze.

    The end of a reviewer was lost while another run was active.
    """
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await until(pilot, lambda: client.sent)
        client.emit(*(RunStarted(run=run, kind=RunKind.AGENTS, title=run) for run in ("worker", "reviewer")))
        await until(pilot, lambda: len(app.store.screen.runs) == 2)
        for run in ("reviewer", "reviewer", "worker"):  # one of them twice
            client.end(run)
        await until(pilot, lambda: not app.store.screen.is_busy)
        await until(pilot, lambda: "send" in last_line(app))
        client.answer("worker", "too late")
        await pilot.pause(0.2)
        assert "too late" not in shown(app)


async def test_an_idle_screen_paints_nothing() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await pilot.press(*"go", "enter")
        run = client.begin()
        client.end(run)
        await until(pilot, lambda: not app.store.screen.is_busy)
        await pilot.pause(1.2)  # after the last tick of the durations
        assert app.frames.is_idle


async def test_reduced_motion_counts_no_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOMIC_REDUCED_MOTION", "1")
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await pilot.press(*"go", "enter")
        await until(pilot, lambda: "working" in last_line(app) or "starting" in last_line(app))
        assert not app.frames.is_ticking


# Ctrl+C.


async def test_ctrl_c_closes_then_stops_then_clears_then_reminds(tmp_path: Path) -> None:
    now = [1000.0]
    client = ScriptedClient()
    app = app_with(client, home=tmp_path, clock=lambda: now[0])

    async def press() -> None:
        now[0] += 5.0
        await pilot.press("ctrl+c")
        now[0] += 5.0

    async with app.run_test() as pilot:
        client.emit(COMMANDS)
        await pilot.press(*"go", "enter")
        run = client.begin()
        await pilot.press("/")
        now[0] += 1
        await until(pilot, lambda: "Work on tasks" in shown(app))
        await press()
        assert "Work on tasks" not in shown(app)
        assert not client.all(Interrupt)
        await press()
        assert client.last(Interrupt) == Interrupt(run=run)
        client.end(run, "interrupted")
        await until(pilot, lambda: not app.store.screen.is_busy)
        await press()
        assert app.prompt.is_empty
        await pilot.press("up")
        assert app.prompt.text == "/"
        await pilot.press("backspace", "ctrl+c")
        await pilot.pause(0.1)
        assert "Ctrl+C again leaves" in last_line(app)
        now[0] += 1.5  # more than a second, but before the reminder ends
        await pilot.press("ctrl+c")
        await pilot.pause()
    assert client.all(Leave)
    assert client.is_closed


async def test_typing_after_the_reminder_cancels_leaving() -> None:
    client = ScriptedClient()
    now = [1000.0]
    app = app_with(client, clock=lambda: now[0])
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
        assert not client.all(Leave)


async def test_clearing_the_prompt_twice_with_letters_between_does_not_leave() -> None:
    client = ScriptedClient()
    app = app_with(client, clock=lambda: 1000.0)
    async with app.run_test() as pilot:
        await pilot.press(*"abc", "ctrl+c", *"def", "ctrl+c")
        await pilot.pause(0.1)
        assert app.is_running
        assert not client.all(Leave)


async def test_the_pill_names_the_key_that_scrolls_to_the_end() -> None:
    client = ScriptedClient()
    app = app_with(client, settings=Settings(keys={"scroll_end": ["alt+g"]}))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"go", "enter")
        run = client.begin()
        client.answer(run, "".join(f"P{number}\n\n" for number in range(60)))
        await until(pilot, lambda: "P59" in shown(app))
        await pilot.press("pageup")
        client.answer(run, "One more.\n\n")
        await until(pilot, lambda: "new · Alt+G" in shown(app))
        await pilot.press("alt+g")
        await until(pilot, lambda: "One more." in shown(app))
        assert "new ·" not in shown(app)


async def test_a_selection_dragged_into_the_header_ends_at_the_first_visible_line() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"go", "enter")
        run = client.begin()
        client.answer(run, "".join(f"P{number}\n\n" for number in range(200)))
        await until(pilot, lambda: "P199" in shown(app))
        await pilot.mouse_down(offset=(10, 12))
        await pilot.hover(offset=(10, 0))
        await pilot.mouse_up(offset=(10, 0))
        copied = app.transcript.selected_text().split()
        assert 3 < len(copied) <= 12, copied


@pytest.mark.parametrize("state", ["idle", "text", "busy", "dialog"])
async def test_ctrl_c_twice_within_a_second_leaves_from_any_state(state: str) -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await until(pilot, lambda: client.sent)
        if state == "text":
            await pilot.press(*"some text")
        elif state == "busy":
            await pilot.press(*"go", "enter")
        elif state == "dialog":
            await pilot.press("f1")
            await until(pilot, lambda: len(app.screen_stack) > 1)
        await pilot.press("ctrl+c", "ctrl+c")
        await until(pilot, lambda: not app.is_running)
    assert client.is_closed
    assert client.all(Leave) == [Leave()]


# Leave.


async def test_ctrl_d_leaves_with_the_engines_last_message() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await pilot.press("x", "ctrl+d")
        assert not client.all(Leave)  # only on the empty prompt
        await pilot.press("backspace", "ctrl+d")
        assert client.all(Leave) == [Leave(pause=True)]
        client.emit(Left(message="Resume with: atomic chat --resume abc"))
        await until(pilot, lambda: not app.is_running)
    assert app.return_value == "Resume with: atomic chat --resume abc"
    assert client.is_closed


async def test_an_exit_command_closes_the_screen() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await until(pilot, lambda: client.sent)
        client.emit(Left(message="bye"))
        await until(pilot, lambda: not app.is_running)
    assert app.return_value == "bye"


async def test_keys_without_an_action_do_not_leave() -> None:
    app = app_with(ScriptedClient())
    async with app.run_test() as pilot:
        await pilot.press("ctrl+q", "ctrl+s", "shift+tab", *"still here")
        await pilot.pause(0.1)
        assert app.is_running
        assert app.prompt.text == "still here"


async def test_a_signal_pauses_runs_and_ends_the_engine() -> None:
    client = ScriptedClient()
    client.on_send = lambda intent: client.emit(Left(message="bye")) if isinstance(intent, Leave) else None
    app = app_with(client)
    async with app.run_test() as pilot:
        await until(pilot, lambda: client.sent)
        app.exit(None, 129)
    assert client.is_closed
    assert client.all(Leave) == [Leave(pause=True)]


async def test_a_crashed_screen_leaves_runs_running() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await until(pilot, lambda: client.sent)
        app.exit(None, 1)
    assert client.is_closed
    assert client.all(Leave) == [Leave()]


# The queue.


async def test_queued_texts_are_shown_edited_and_sent_one_by_one() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"first", "enter")
        run = client.begin()
        await pilot.press(*"second", "enter", *"third", "enter")
        await until(pilot, lambda: "1 second" in shown(app) and "2 third" in shown(app))
        assert [sent.text for sent in client.all(Submit)] == ["first"]

        await pilot.press("up")
        await until(pilot, lambda: app.prompt.text == "third")
        await pilot.press(*" edited", "enter")
        client.end(run)
        await until(pilot, lambda: len(client.all(Submit)) == 2)
        await pilot.pause(0.2)
        assert [sent.text for sent in client.all(Submit)] == ["first", "second"]
        client.end(client.begin())
        await until(pilot, lambda: len(client.all(Submit)) == 3)
        assert client.last(Submit).text == "third edited"
        await until(pilot, lambda: "edits" not in shown(app))


async def test_the_queue_waits_after_a_failure_and_continues_after_a_success() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(100, 24), notifications=True) as pilot:
        await pilot.press(*"first", "enter")
        run = client.begin()
        await pilot.press(*"second", "enter")
        client.end(run, "failed")
        await until(pilot, lambda: "the queue waits" in shown(app))
        assert len(client.all(Submit)) == 1
        await pilot.press(*"again", "enter")
        await until(pilot, lambda: len(client.all(Submit)) == 2)
        client.end(client.begin())
        await until(pilot, lambda: len(client.all(Submit)) == 3)
        assert [sent.text for sent in client.all(Submit)] == ["first", "again", "second"]


async def test_screen_commands_skip_the_queue_and_workflows_do_not_block_it() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await pilot.press(*"first", "enter")
        client.begin()
        await pilot.press(*"/help", "enter")
        await until(pilot, lambda: [sent.text for sent in client.all(Submit)] == ["first", "/help"])
        for sent in client.all(Submit):
            client.end(sent.run)
        client.emit(RunStarted(run="w", kind=RunKind.WORKFLOW, title="ralph", session="s"))
        await until(pilot, lambda: list(app.store.screen.runs.values())[-1].kind is RunKind.WORKFLOW)
        await pilot.press(*"second", "enter")
        await until(pilot, lambda: client.last(Submit).text == "second")


async def test_the_empty_screen_names_the_agent_once_it_is_ready() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await until(pilot, partial(_shows, app, "Ask the agent for something"))
        client.emit(StatusChanged(provider="claude", ready=True))
        await until(pilot, partial(_shows, app, "Ask claude for something"))


async def test_the_last_line_shows_the_effect_of_esc() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"go", "enter")
        client.emit(COMMANDS)
        plan = PlanChanged((PlanItem("Read it", "in_progress"),))
        client.emit(Activity(run=client.begin(), event=plan))
        await until(pilot, lambda: "Esc stops" in shown(app) and "0/1" in shown(app))
        await pilot.press("ctrl+t")
        await until(pilot, lambda: "plan 0/1" in shown(app) and "Esc close" in shown(app))
        assert "Esc stops" not in shown(app)
        await pilot.press("escape")
        await until(pilot, lambda: "Esc stops" in shown(app))
        await pilot.press("/")
        await until(pilot, lambda: "Esc close" in shown(app))
        assert "Esc stops" not in shown(app)
        assert not client.all(Interrupt)


async def test_the_graph_gets_the_rows_left_by_other_panels() -> None:
    app = app_with(ScriptedClient())
    async with app.run_test(size=(120, 40)) as pilot:
        for tasks, is_whole in ((samples.four_tasks(), True), (samples.many_tasks(), False)):
            app.store = Store(samples.ralph(tasks=tasks))
            app.frames.mark(EVERYTHING)
            heading = f"/{len(tasks)} ─"
            await until(pilot, partial(_shows, app, "work ▶ (3)", heading))
            await until(pilot, partial(_shows_or_not, app, is_whole, "again", "◉ end"))


async def test_the_engine_knows_the_width_of_a_line() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"go", "enter")
        run = client.begin()
        width = client.last(ScreenSize).width
        client.emit(ChatNotice(text="x" * width + "\n" + "y" * (width + 1), run=run))
        client.emit(*(ChatNotice(text=f"{number}", run=run) for number in range(20)))
        await until(pilot, lambda: "19" in shown(app))
        await pilot.press("ctrl+home")
        await until(pilot, lambda: "x" * width in shown(app))  # with a scrollbar too
        assert "y" * (width + 1) not in shown(app)


# Questions and pickers.


async def test_a_question_opens_by_itself_and_its_answer_is_sent() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: client.sent)
        client.emit(question("q1"), question("q2", "Sure?"))
        await until(pilot, lambda: _is_question_open(app, "Which branch?"))
        await pilot.press("2")
        # A digit only chooses an option; Enter sends the answer.
        assert not client.all(Answer)
        await pilot.press("enter")
        await until(pilot, lambda: client.all(Answer))
        assert client.last(Answer) == Answer(question="q1", answers=("develop",))
        await until(pilot, lambda: _is_question_open(app, "Esc later · F6 reopens"))
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        assert len(client.all(Answer)) == 1
        await pilot.press("f6")
        await until(pilot, lambda: _is_question_open(app, "Sure?"))
        await pilot.press("enter")
        await until(pilot, lambda: len(client.all(Answer)) == 2)
        assert client.last(Answer) == Answer(question="q2", answers=("main",))


async def test_keys_typed_before_a_question_is_shown_do_not_answer_it() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: client.sent)
        client.emit(question("q1"), question("q2", "Sure?"))
        await until(pilot, lambda: _is_question_open(app, "Which branch?"))
        # The user has typed all keys by now; a slow screen handles the last two after the
        # next question is shown.
        typed = [events.Key(key, None) for key in ("enter", "2", "enter")]
        app.post_message(typed[0])
        await until(pilot, lambda: client.all(Answer))
        # The transcript behind the first question has the text of the second one too.
        await until(pilot, lambda: _is_question_open(app, "Sure?") and "question 1 of 2" not in shown(app))
        app.post_message(typed[1])
        app.post_message(typed[2])
        await pilot.press("enter")
        await until(pilot, lambda: len(client.all(Answer)) == 2)
        # The early "2" has not chosen the second option.
        assert client.all(Answer) == [Answer(question=id, answers=("main",)) for id in ("q1", "q2")]


async def test_a_question_does_not_take_letters_meant_for_the_prompt() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"I am typ")
        client.emit(question("q1"))
        await until(pilot, lambda: "1 question waits" in shown(app))
        await pilot.press(*"ing 1")
        assert app.prompt.text == "I am typing 1"
        await pilot.press("f6")
        await until(pilot, lambda: len(app.screen_stack) == 2)
        client.emit(QuestionClosed(id="q1"))
        await until(pilot, lambda: len(app.screen_stack) == 1)
        assert not client.all(Answer)


async def test_a_question_right_after_a_key_opens_a_moment_later() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"go", "enter")
        client.begin()
        client.emit(question("q1"))
        await until(pilot, lambda: "q1" in app.store.screen.questions)
        assert len(app.screen_stack) == 1
        await until(pilot, lambda: _is_question_open(app, "Which branch?"))
        await pilot.press("enter")
        assert client.last(Answer) == Answer(question="q1", answers=("main",))


async def test_a_postponed_question_stays_closed() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await until(pilot, lambda: client.sent)
        client.emit(question("q1"), question("q2"))
        await until(pilot, lambda: _is_question_open(app, "Which branch?"))
        await pilot.press("f6")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        client.emit(QuestionClosed(id="q2"))
        await until(pilot, lambda: len(app.store.screen.questions) == 1)
        await pilot.pause(0.2)
        assert len(app.screen_stack) == 1


async def test_remapped_keys_work_in_dialogs() -> None:
    client = ScriptedClient()
    app = app_with(client, settings=Settings(keys={"stop": ("f9",), "questions": ("f8",)}))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        await until(pilot, lambda: len(app.screen_stack) == 2)
        await pilot.press("f9")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        client.emit(question("q1"))
        await until(pilot, lambda: _is_question_open(app, "F8 reopens"))
        await pilot.press("f8")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        await pilot.press("f8")
        await until(pilot, lambda: len(app.screen_stack) == 2)
        await pilot.press("f9")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        assert not client.all(Answer)


async def test_a_picker_sends_the_chosen_row() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await pilot.press("f2")
        await until(pilot, lambda: client.all(Submit))
        assert client.last(Submit).text == "/model"
        rows = (PickRow("opus", "Opus", current=True), PickRow("sonnet", "Sonnet"))
        client.emit(PickOpened(request="p1", kind=PickKind.MODEL, title="Models", rows=rows))
        await until(pilot, lambda: len(app.screen_stack) == 2)
        await pilot.press("down", "enter")
        await until(pilot, lambda: client.all(Picked))
        assert client.last(Picked) == Picked(request="p1", value="sonnet")
        client.emit(PickOpened(request="p2", kind=PickKind.MODEL, title="Models", rows=rows))
        await until(pilot, lambda: len(app.screen_stack) == 2)
        await pilot.press("escape")
        await until(pilot, lambda: len(client.all(Picked)) == 2)
        assert client.last(Picked) == Picked(request="p2", value=None)


# Keys.


async def test_keys_are_remapped_and_mistakes_in_them_are_reported() -> None:
    client = ScriptedClient()
    settings = Settings(keys={"keys": ["f9"], "nope": ["f8"]}, warnings=("config.toml: something",))
    app = app_with(client, settings=settings)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await until(pilot, lambda: "keys.nope: there is no such action" in shown(app))
        assert "config.toml: something" in shown(app)
        await pilot.press("question_mark")
        assert app.prompt.text == "?"
        await pilot.press("backspace", "f9")
        await until(pilot, lambda: len(app.screen_stack) == 2)


async def test_a_question_mark_lists_the_keys_only_on_the_empty_prompt() -> None:
    app = app_with(ScriptedClient())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("question_mark")
        await until(pilot, lambda: "Keys" in shown(app) and "Ctrl+C" in shown(app))
        keys = sum(len(action.keys) for action in TABLE)
        assert any(row.strip("│ ").split() == ["Keys", str(keys)] for row in shown(app).splitlines())
        await pilot.press("escape", *"what?")
        assert app.prompt.text == "what?"


async def test_the_palette_runs_commands_and_actions() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(100, 30)) as pilot:
        client.emit(COMMANDS)
        await until(pilot, lambda: app.store.screen.commands)
        await pilot.press("ctrl+p")
        await until(pilot, lambda: len(app.screen_stack) == 2)
        await pilot.press(*"/ralph", "enter")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        assert app.prompt.text == "/ralph "
        await pilot.press("ctrl+c", "ctrl+p")
        await until(pilot, lambda: len(app.screen_stack) == 2)
        await pilot.press(*"/help", "enter")
        await until(pilot, lambda: client.all(Submit))
        assert client.last(Submit).text == "/help"


async def test_the_transcript_is_read_block_by_block() -> None:
    client = ScriptedClient()
    app = app_with(client)
    copied: list[str] = []
    app.desktop.copy = lambda text, if_empty: copied.append(text)
    async with app.run_test() as pilot:
        await until(pilot, lambda: client.sent)
        client.emit(ChatNotice(text="one"), ChatNotice(text="two"), ChatNotice(text="three"))
        await until(pilot, lambda: "three" in shown(app))
        await pilot.press("ctrl+o", "y", "k", "y", "g", "y", "j", "y", "G", "y", "x")
        assert copied == ["three", "two", "one", "two", "three"]
        await pilot.press("q", *"jy")
        assert app.prompt.text == "jy"


async def test_the_last_answer_is_copied_and_the_screen_reports_how(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMUX", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    client = ScriptedClient()
    app = app_with(client)
    written: list[str] = []
    monkeypatch.setattr("atomic.tui.compat.write", _append_to(written))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("ctrl+y")
        await until(pilot, lambda: "There is no answer yet" in shown(app))
        await pilot.press(*"go", "enter")
        run = client.begin()
        client.answer(run, "the **answer**")
        client.end(run)
        await until(pilot, lambda: "the answer" in shown(app))
        await pilot.press("ctrl+y")
        await until(pilot, lambda: "Copied by the terminal (OSC 52)" in shown(app))
        assert "\x1b]52;c;dGhlICoqYW5zd2VyKio=\x07" in written


async def test_a_link_never_opens_a_program_in_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    opened: list[str] = []
    copied: list[str] = []
    app = app_with(ScriptedClient())
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
    client = ScriptedClient()
    app = app_with(client)
    written: list[str] = []
    monkeypatch.setattr("atomic.tui.compat.write", _append_to(written))
    async with app.run_test() as pilot:
        await pilot.press(*"one", "enter")
        client.end(client.begin())
        await until(pilot, lambda: not app.store.screen.is_busy)
        await pilot.pause(0.2)
        assert not any("\x07" in words for words in written)  # the terminal has the focus
        await pilot.press(*"two", "enter")
        run = client.begin()
        app.app_focus = False
        client.end(run)
        await until(pilot, lambda: any("done" in words for words in written))
        assert written[-1].startswith("\x07")
        assert "\x1b]0;● Atomic is done\x07" in written[-1]


async def test_the_terminal_notifies_an_absent_user_when_a_workflow_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TERM_PROGRAM", raising=False)
    client = ScriptedClient()
    app = app_with(client)
    written: list[str] = []
    monkeypatch.setattr("atomic.tui.compat.write", _append_to(written))
    async with app.run_test() as pilot:
        await pilot.press(*"/ralph it", "enter")
        app.app_focus = False
        run = client.last(Submit).run
        client.emit(RunStarted(run=run, kind=RunKind.WORKFLOW, title="ralph", session="s-1"))
        await until(pilot, lambda: app.store.screen.runs[run].kind is RunKind.WORKFLOW)
        await pilot.pause(0.2)
        assert not any("\x07" in words for words in written)
        client.end(run, "completed")
        await until(pilot, lambda: any("\x07" in words for words in written))
        assert "\x1b]0;● Atomic: ralph completed\x07" in written[-1]


async def test_files_are_offered_for_the_latest_letters() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(80, 24)) as pilot:
        client.emit(COMMANDS)
        await pilot.press(*"see @sr")
        await until(pilot, lambda: len(client.all(FindFiles)) == 3)
        late = client.all(FindFiles)[1]
        last = client.last(FindFiles)
        client.emit(FilesFound(request=last.request, paths=("src/app.py", "src/b.py")))
        client.emit(FilesFound(request=late.request, paths=("nonsense",)))
        await until(pilot, lambda: "@src/app.py" in shown(app))
        assert "nonsense" not in shown(app)
        await pilot.press("down", "tab")
        assert app.prompt.text == "see @src/b.py "
        assert "app.py" not in shown(app)


async def test_a_theme_is_set_and_an_unknown_one_is_reported() -> None:
    client = ScriptedClient()
    app = app_with(client, theme="light")
    async with app.run_test(notifications=True) as pilot:
        await until(pilot, lambda: app.theme == "atomic-light")
        client.emit(ThemeSet(name="contrast"))
        await until(pilot, lambda: app.theme == "atomic-contrast")
        client.emit(ThemeSet(name="pink"))
        await until(pilot, lambda: 'There is no theme "pink"' in shown(app))


@pytest.mark.parametrize("terminal", ["linux", "screen", "xterm"])
async def test_a_terminal_with_16_colours_gets_the_ansi_theme(monkeypatch: pytest.MonkeyPatch, terminal: str) -> None:
    monkeypatch.setenv("COLORTERM", "")
    monkeypatch.setenv("TERM", terminal)
    app = app_with(ScriptedClient())
    async with app.run_test():
        assert app.theme == "atomic-ansi"


async def test_a_shell_command_is_shown_as_running() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await pilot.press(*"!sleep 30", "enter")
        await until(pilot, lambda: "running" in last_line(app))
        client.emit(RunStarted(run=client.last(Shell).run, kind=RunKind.SHELL, prompt="!sleep 30"))
        await pilot.pause(0.1)
        assert "starting" not in last_line(app)


async def test_a_late_background_colour_changes_the_theme_unless_one_was_chosen() -> None:
    app = app_with(ScriptedClient())
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.theme == "atomic-dark")
        app.set_background("rgb:ffff/ffff/ffff")
        assert app.theme == "atomic-light"
    chosen = app_with(ScriptedClient(), theme="dark")
    async with chosen.run_test():
        chosen.set_background("rgb:ffff/ffff/ffff")
        assert chosen.theme == "atomic-dark"


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize(("key", "words"), [("ctrl+t", "No tasks yet"), ("f6", "No question waits")])
async def test_esc_closes_an_empty_panel_and_stops_no_run(size: tuple[int, int], key: str, words: str) -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.press(*"go", "enter")
        client.begin()
        await until(pilot, lambda: "Esc stops" in shown(app))
        await pilot.press(key)
        await until(pilot, lambda: words in shown(app))
        await until(pilot, lambda: "Esc stops" not in shown(app))
        await pilot.press("escape")
        await until(pilot, lambda: words not in shown(app) and "Esc stops" in shown(app))
        assert not client.all(Interrupt)
        # After another key, Esc stops the turn.
        await pilot.press(key, "x", "backspace", "escape")
        await until(pilot, lambda: bool(client.all(Interrupt)))


async def test_esc_reopens_a_panel_closed_by_the_previous_key() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(*"go", "enter")
        client.emit(Activity(run=client.begin(), event=PlanChanged((PlanItem("the first step"),))))
        await until(pilot, lambda: app.panels.side.display)
        await pilot.press("ctrl+t")
        await until(pilot, lambda: not app.panels.side.display)
        await pilot.press("escape")
        await until(pilot, lambda: app.panels.side.display)
        assert not client.all(Interrupt)
        # The panel is as before, so Esc stops the turn.
        await pilot.press("ctrl+t", "ctrl+t", "escape")
        await until(pilot, lambda: bool(client.all(Interrupt)))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 12)])
async def test_panels_are_next_to_a_wide_transcript_and_cover_a_narrow_one(size: tuple[int, int]) -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=size) as pilot:
        await pilot.press(*"go", "enter")
        client.emit(Activity(run=client.begin(), event=PlanChanged((PlanItem("the first step"),))))
        is_wide = size[0] >= 100
        await until(pilot, lambda: "the first step" in shown(app))
        assert app.panels.side.display is is_wide
        await pilot.press("ctrl+t")
        await until(pilot, lambda: app.panels.side.display is not is_wide)
        assert app.transcript.display is is_wide
        await pilot.press("escape" if not is_wide else "ctrl+t")
        await until(pilot, lambda: app.panels.side.display is is_wide)
        assert not client.all(Interrupt)


async def test_a_new_conversation_is_empty() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await until(pilot, lambda: client.sent)
        client.emit(ChatNotice(text="something old"))
        await until(pilot, lambda: "something old" in shown(app))
        client.emit(Cleared(session="new"))
        await until(pilot, lambda: "something old" not in shown(app))
