"""The question dialog and its keys."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from textual.app import App
from textual.events import Paste

from atomic.questions import Option, Question
from atomic.tui.screens.question import Answered, QuestionScreen
from atomic.tui.state.model import QuestionEntry, Screen
from tests.tui.snapshots.frames import frame_of

BRANCH = Question("Which branch?", options=("main", "develop", "release"), default="develop")
SUITES = Question("Which suites?", options=("unit", "e2e", "bench"), default="unit", multi_select=True)
NAME = Question("What is it called?", default="v2")
FREE = Question("Why?")


class _QuestionApp(App[None]):
    def __init__(self, questions: Sequence[Question]) -> None:
        super().__init__()
        self.entries = {f"q{at}": QuestionEntry(f"q{at}", "r", question, f"agent {at}")
                        for at, question in enumerate(questions, 1)}  # fmt: skip
        self.results: list[Answered | None] = []

    def on_mount(self) -> None:
        if self.entries:
            self.push_screen(QuestionScreen(list(self.entries.values())), self.results.append)

    def keep_only(self, *ids: str) -> None:
        dialog = self.screen
        assert isinstance(dialog, QuestionScreen)
        dialog.sync(Screen(questions={id: self.entries[id] for id in ids}), 0.0)

    @property
    def text(self) -> str:
        return frame_of(self).text


async def _answer(questions: Sequence[Question], *keys: str) -> list[Answered | None]:
    app = _QuestionApp(questions)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
    return app.results


_CASES = [
    (BRANCH, ("enter",), ("develop",)),  # the default is marked
    (BRANCH, ("1", "enter"), ("main",)),
    (BRANCH, ("3", "enter"), ("release",)),
    (BRANCH, ("3", "1", "enter"), ("main",)),
    (BRANCH, ("down", "enter"), ("release",)),
    (BRANCH, ("up", "enter"), ("main",)),
    (BRANCH, ("down", "down", "down", "enter"), ("main",)),  # past "other…", wraps around
    (BRANCH, ("4", "h", "o", "t", "enter"), ("hot",)),
    (BRANCH, ("4", "h", "i", "ctrl+j", "y", "o", "enter"), ("hi\nyo",)),
    (BRANCH, ("4", "x", "up", "enter"), ("release",)),  # back from the free text
    (SUITES, ("enter",), ("unit",)),
    (SUITES, ("down", "space", "enter"), ("unit", "e2e")),
    (SUITES, ("3", "1", "enter"), ("bench",)),
    (SUITES, ("space", "down", "enter"), ("e2e",)),  # without a mark the cursor counts
    (SUITES, ("2", "4", "l", "i", "n", "t", "enter"), ("unit", "e2e", "lint")),
    (NAME, ("enter",), ("v2",)),
    (NAME, ("v", "3", "enter"), ("v3",)),
]


async def test_keys_answer_a_question() -> None:
    app = _QuestionApp([])
    given: list[object] = []
    async with app.run_test(size=(80, 24)) as pilot:
        for question, keys, _ in _CASES:
            await app.push_screen(QuestionScreen([QuestionEntry("q", "r", question)]), given.append)
            await pilot.press(*keys)
            await pilot.pause()
    expected = [(question.text, keys, Answered("q", answers)) for question, keys, answers in _CASES]
    assert [(case[0].text, case[1], result) for case, result in zip(_CASES, given, strict=True)] == expected


async def test_an_empty_answer_keeps_the_dialog_open() -> None:
    assert await _answer([FREE], "enter", "space", "enter") == []


@pytest.mark.parametrize("keys", [("f6",), ("escape",), ("4", "x", "escape"), ("tab", "escape")])
async def test_esc_and_f6_postpone_all_questions(keys: tuple[str, ...]) -> None:
    assert await _answer([BRANCH, NAME], *keys) == [None]


@pytest.mark.parametrize(
    ("keys", "result"),
    [
        (("tab", "1", "enter"), Answered("q2", ())),
        (("shift+tab", "enter"), Answered("q3", ("v2",))),
        (("left", "x", "tab", "enter"), Answered("q1", ("develop",))),
        (("tab", "tab", "tab", "enter"), Answered("q1", ("develop",))),
    ],
)
async def test_one_of_several_questions_is_answered(keys: tuple[str, ...], result: Answered) -> None:
    # The mark of "unit" was removed, so the row with the cursor counts.
    if result.answers == ():
        result = Answered("q2", ("unit",))
    assert await _answer([BRANCH, SUITES, NAME], *keys) == [result]


async def test_a_draft_is_kept_while_another_question_is_shown() -> None:
    app = _QuestionApp([FREE, BRANCH])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("s", "o", "tab")
        assert "question 2 of 2" in app.text
        assert "so" not in app.text.splitlines()[-3]
        await pilot.press("tab", "!", "enter")
    assert app.results == [Answered("q1", ("so!",))]


async def test_a_withdrawn_question_makes_room_for_the_next() -> None:
    app = _QuestionApp([BRANCH, SUITES, NAME])
    async with app.run_test(size=(80, 24)) as pilot:
        app.keep_only("q2", "q3")
        await pilot.pause()
        assert "Which suites?" in app.text
        assert "question 1 of 2" in app.text
        app.keep_only("q2")
        await pilot.pause()
        assert "question" not in app.text
        app.keep_only()
        await pilot.pause()
        assert not isinstance(app.screen, QuestionScreen)
    assert app.results == [None]


async def test_a_new_question_does_not_replace_the_open_one() -> None:
    app = _QuestionApp([FREE, BRANCH])
    async with app.run_test(size=(80, 24)) as pilot:
        app.keep_only("q1")
        await pilot.press("b", "e", "c")
        app.keep_only("q1", "q2")
        await pilot.press("a", "u", "s", "e")
        await pilot.pause()
        assert "question 1 of 2" in app.text
        await pilot.press("enter")
    assert app.results == [Answered("q1", ("because",))]


async def test_a_click_chooses_a_row() -> None:
    app = _QuestionApp([BRANCH])
    async with app.run_test(size=(80, 24)) as pilot:
        row = next(at for at, text in enumerate(app.text.splitlines()) if "release" in text)
        await pilot.click(offset=(10, row))
    assert app.results == [Answered("q1", ("release",))]


async def test_hostile_options_are_shown_safely_and_returned_unchanged() -> None:
    label = "a\x1b]0;title\x07\u202eb[red]x[/red]"
    app = _QuestionApp([Question("Really\x1b[2J?\nyes", options=(Option(label, "d\x9bm"),), default=label)])
    async with app.run_test(size=(80, 24)) as pilot:
        assert not any(sign in app.text for sign in "\x1b\x07\x9b\u202e")
        assert "[red]x[/red]" in app.text
        await pilot.press("enter")
    assert app.results == [Answered("q1", (label,))]


async def test_a_paste_of_several_lines_stays_whole() -> None:
    app = _QuestionApp([FREE])
    async with app.run_test(size=(80, 24)) as pilot:
        app.post_message(Paste("one\ntwo\nthree"))
        await pilot.pause()
        await pilot.press("enter")
    assert app.results == [Answered("q1", ("one\ntwo\nthree",))]
