"""The prompt: line breaks, history, pastes, suggestions, the editor and shell keys."""

from __future__ import annotations

import stat
import time
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.geometry import Offset
from textual.pilot import Pilot

from atomic.chat.prompt_history import PromptHistory
from atomic.chat.protocol import CommandInfo, CommandsListed, Submit
from atomic.config import Settings
from atomic.tui.app import AtomicApp
from atomic.tui.widgets.prompt import Prompt, PromptArea
from tests.support.timing import judge
from tests.tui.app.scripted_client import ScriptedClient, app_with, shown, until

COMMANDS = CommandsListed(
    commands=(
        CommandInfo("help", "Show help", "builtin", ("h",), "[command]"),
        CommandInfo("ralph", "Work on tasks", "workflow", ("loop",), "<prompt>"),
        CommandInfo("research", "Read the code", "command", (), "<question or topic of some length>"),
    )
)


def prompt_of(app: AtomicApp) -> Prompt:
    return app.query_one(Prompt)


def area_of(app: AtomicApp) -> PromptArea:
    return app.query_one(PromptArea)


async def paste(pilot: Pilot[Any], text: str) -> None:
    pilot.app.post_message(events.Paste(text))
    await pilot.pause()


async def sent_text(pilot: Pilot[Any], client: ScriptedClient) -> str:
    await pilot.press("enter")
    await until(pilot, lambda: client.all(Submit))
    return client.last(Submit).text


@pytest.mark.parametrize("key", ["ctrl+j", "alt+enter", "shift+enter"])
async def test_lines_break_and_enter_sends(key: str) -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await pilot.press(*"one", key, *"two", "backslash", "enter", *"three")
        assert await sent_text(pilot, client) == "one\ntwo\nthree"
        assert prompt_of(app).is_empty


async def test_keys_that_arrive_together_keep_their_order() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        client.emit(COMMANDS)
        await until(pilot, lambda: app.store.screen.commands)
        await pilot.pause(0.3)
        for key in (*"abc", "enter", *"/he", "enter", *"xy", "left", "backspace", *"z"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        app.post_message(events.Paste("pasted"))
        app.post_message(events.Key("enter", "\r"))
        await until(pilot, lambda: len(client.all(Submit)) == 2 and app.store.screen.queue)
        assert [sent.text for sent in client.all(Submit)] == ["abc", "/help"]
        assert app.store.screen.queue[0].text == "zpastedy"


async def test_letters_reach_the_prompt_after_a_click_anywhere() -> None:
    app = app_with(ScriptedClient())
    async with app.run_test() as pilot:
        await pilot.click("TranscriptView")
        await pilot.press(*"hi")
        assert prompt_of(app).text == "hi"
        assert app.focused is area_of(app)


async def test_an_empty_prompt_is_not_sent() -> None:
    client = ScriptedClient()
    async with app_with(client).run_test() as pilot:
        await pilot.press("enter", "space", "enter")
        await pilot.pause(0.1)
        assert not client.all(Submit)


async def test_a_long_text_scrolls_and_leaves_room_for_the_rest() -> None:
    app = app_with(ScriptedClient())
    async with app.run_test(size=(40, 12)) as pilot:
        await paste(pilot, "\n".join(f"line {number}" for number in range(9)))
        await pilot.pause()
        lines = shown(app).splitlines()
        assert len(lines) == 12
        assert "atomic" in lines[0]
        assert "line 8" in lines[-2]
        assert "send" in lines[-1]


async def test_the_editing_keys_of_a_shell_work() -> None:
    app = app_with(ScriptedClient())
    async with app.run_test() as pilot:
        area = area_of(app)
        await pilot.press(*"one two three", "ctrl+w")
        assert area.text == "one two "
        await pilot.press("ctrl+a", *"x", "ctrl+e", *"y")
        assert area.text == "xone two y"
        await pilot.press("alt+b", "alt+b", "ctrl+k")
        assert area.text == "xone "
        await pilot.press("ctrl+underscore")
        assert area.text == "xone two y"
        await pilot.press("alt+f", "alt+f", "alt+f", "ctrl+u")
        assert area.text == ""


# Pastes.


@pytest.mark.timed
async def test_a_paste_of_100_kb_is_one_placeholder_and_is_sent_byte_for_byte() -> None:
    client = ScriptedClient()
    app = app_with(client)
    text = "".join(f"{number:05} \x1b[31m\u202e ünï\tcödé 漢字 {'x' * 30}\r\n" for number in range(1_900))
    assert len(text.encode()) > 100_000
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"see ")
        before = time.process_time()
        await paste(pilot, text)
        judge(time.process_time() - before, 0.3)
        assert prompt_of(app).text == "see [Pasted 1,900 lines]"
        assert "see [Pasted 1,900 lines]" in shown(app)
        await pilot.press(*" now")
        assert await sent_text(pilot, client) == f"see {text} now"


async def test_a_small_paste_is_text() -> None:
    app = app_with(ScriptedClient())
    async with app.run_test() as pilot:
        await paste(pilot, "two\rlines")
        assert prompt_of(app).text == "two\nlines"


async def test_backspace_removes_a_whole_paste_and_undo_brings_it_back() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await pilot.press("a")
        await paste(pilot, "line\n" * 50)
        await pilot.press("b", "left", "backspace")
        assert prompt_of(app).text == "ab"
        await pilot.press("ctrl+underscore")
        assert prompt_of(app).text == "a[Pasted 50 lines]b"
        assert await sent_text(pilot, client) == "a" + "line\n" * 50 + "b"


async def test_a_queued_paste_is_whole_when_it_is_edited_again() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        await pilot.press(*"first", "enter")
        run = client.begin()
        await paste(pilot, "line\n" * 50)
        await pilot.press("enter")
        await until(pilot, lambda: app.store.screen.queue)
        await pilot.pause(0.2)
        await pilot.press("up")
        await until(pilot, lambda: prompt_of(app).text == "[Pasted 50 lines]")
        await pilot.press("enter")
        client.end(run)
        await until(pilot, lambda: len(client.all(Submit)) == 2)
        assert client.last(Submit).text == "line\n" * 50


# Wide characters.


async def test_the_terminal_cursor_is_where_the_next_letter_appears() -> None:
    app = app_with(ScriptedClient())
    async with app.run_test(size=(40, 12)) as pilot:
        area = area_of(app)
        assert app.cursor_position == area.content_region.offset  # before anything is typed
        for text, cells in (("漢字", 4), ("ab", 2), ("한글", 4), ("é", 1)):
            before = app.cursor_position
            await paste(pilot, text)
            assert app.cursor_position - before == Offset(cells, 0)
        end = app.cursor_position
        await pilot.press("left", "left")
        assert end - app.cursor_position == Offset(3, 0)
        await pilot.press("backspace")
        assert area.text == "漢字ab글é"


async def test_the_terminal_cursor_follows_the_layout() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(40, 12)) as pilot:
        client.emit(COMMANDS)
        await pilot.press("/")
        await until(pilot, lambda: "Work on tasks" in shown(app))
        await pilot.pause()
        row = next(at for at, line in enumerate(shown(app).splitlines()) if line.startswith(" › /"))
        assert app.cursor_position == Offset(4, row)


async def test_an_input_method_can_insert_whole_words() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        for sign in "日本語":
            app.post_message(events.Key(sign, sign))
        await pilot.pause()
        assert await sent_text(pilot, client) == "日本語"


# The list of suggestions.


async def test_the_list_filters_completes_and_hints() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test(size=(80, 24)) as pilot:
        client.emit(COMMANDS)
        await pilot.press("/")
        await until(pilot, lambda: "/research" in shown(app))
        assert "<question or topic o..." in shown(app)
        await pilot.press(*"ra")
        await pilot.pause()
        assert "/research" not in shown(app)
        await pilot.press("tab")
        await pilot.pause()
        assert prompt_of(app).text == "/ralph "
        assert "› /ralph <prompt>" in shown(app)
        await pilot.press("right")
        assert prompt_of(app).text == "/ralph "  # without the hint
        await pilot.press("x")
        await pilot.pause()
        assert "<prompt>" not in shown(app)
        await pilot.press("backspace", "backspace")
        await pilot.pause()
        assert "Work on tasks" in shown(app)


async def test_enter_completes_commands_with_arguments_and_runs_others() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        client.emit(COMMANDS)
        await pilot.press("/")
        await until(pilot, lambda: "Work on tasks" in shown(app))
        await pilot.press("enter")
        assert prompt_of(app).text == "/ralph "
        assert not client.all(Submit)
        await pilot.press("ctrl+u", *"/he", "enter")
        await until(pilot, lambda: client.all(Submit))
        assert client.last(Submit).text == "/help"


async def test_esc_closes_the_list_until_the_text_changes() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        client.emit(COMMANDS)
        await pilot.press("/")
        await until(pilot, lambda: "Work on tasks" in shown(app))
        await pilot.press("escape")
        await pilot.pause()
        assert "Work on tasks" not in shown(app)
        assert prompt_of(app).text == "/"
        await pilot.press("r")
        await until(pilot, lambda: "Work on tasks" in shown(app))
        await pilot.press("escape", "tab")
        await until(pilot, lambda: "Work on tasks" in shown(app))


async def test_arrows_move_through_the_list_and_wrap_around() -> None:
    client = ScriptedClient()
    app = app_with(client)
    async with app.run_test() as pilot:
        client.emit(COMMANDS)
        await pilot.press("/")
        await until(pilot, lambda: "▸ /ralph" in shown(app))
        await pilot.press("up")
        await pilot.pause()
        assert "▸ /help" in shown(app)
        await pilot.press("ctrl+n", "down")
        await pilot.pause()
        assert "▸ /research" in shown(app)


async def test_a_long_list_scrolls_and_counts_the_hidden_rows() -> None:
    client = ScriptedClient()
    app = app_with(client)
    many = tuple(CommandInfo(f"command-{number:02}", "Does it", "command") for number in range(30))
    async with app.run_test(size=(40, 12)) as pilot:
        client.emit(CommandsListed(commands=many))
        await pilot.press("/")
        await until(pilot, lambda: "▸ /command-00" in shown(app))
        assert "↓26" in shown(app)
        await pilot.press(*["down"] * 10)
        await pilot.pause()
        assert "▸ /command-10" in shown(app)
        assert "↑7" in shown(app)


# History.


async def test_arrows_walk_through_the_history_and_return_to_the_draft(tmp_path: Path) -> None:
    client = ScriptedClient()
    app = app_with(client, home=tmp_path)
    async with app.run_test() as pilot:
        for text in ("first", "second"):
            await pilot.press(*text, "enter")
            await until(pilot, lambda: client.all(Submit))
            client.end(client.begin())
            await until(pilot, lambda: not app.store.screen.is_busy)
        await pilot.press(*"draft", "up", "up")
        assert prompt_of(app).text == "first"
        await pilot.press("down")
        assert prompt_of(app).text == "second"
        await pilot.press("down")
        assert prompt_of(app).text == "draft"
    assert stat.S_IMODE((tmp_path / "history.jsonl").stat().st_mode) == 0o600
    assert PromptHistory(tmp_path / "history.jsonl", "/project").texts() == ["second", "first"]


async def test_arrows_first_move_inside_a_text_of_several_lines() -> None:
    app = app_with(ScriptedClient())
    async with app.run_test() as pilot:
        await pilot.press(*"one", "ctrl+j", *"two", "up", *"x")
        assert prompt_of(app).text == "onex\ntwo"


async def test_ctrl_r_searches_the_history_and_enter_takes_a_text(tmp_path: Path) -> None:
    history = PromptHistory(tmp_path / "history.jsonl", "/project")
    for text in ("fix the login", "write docs", "fix the tests"):
        history.add(text, 1.0)
    app = app_with(ScriptedClient(), home=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "▸ fix the tests" in shown(app) and "write docs" in shown(app))
        await pilot.press(*"fix")
        await pilot.pause()
        assert "write docs" not in shown(app)
        await pilot.press("ctrl+r", "enter")
        assert prompt_of(app).text == "fix the login"
        await pilot.pause()
        assert "fix the tests" not in shown(app)
        await pilot.press("ctrl+u", *"x", "ctrl+r", "escape")
        assert prompt_of(app).text == "x"


# The editor.


async def test_the_editor_gets_pastes_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "editor.sh"
    script.write_text(f'#!/bin/sh\ncp "$1" {tmp_path}/seen\nprintf " and more" >> "$1"\n')
    script.chmod(0o755)
    client = ScriptedClient()
    app = app_with(client, settings=Settings(editor=str(script)))
    monkeypatch.setattr(AtomicApp, "suspend", _stay_on_screen)
    async with app.run_test() as pilot:
        await pilot.press(*"look ")
        await paste(pilot, "line\n" * 50)
        await pilot.press("ctrl+g")
        await pilot.pause()
        assert (tmp_path / "seen").read_text() == "look " + "line\n" * 50
        assert prompt_of(app).text == "look [Pasted 50 lines] and more"
        assert await sent_text(pilot, client) == "look " + "line\n" * 50 + " and more"


async def test_an_editor_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_with(ScriptedClient(), settings=Settings(editor="false"))
    monkeypatch.setattr(AtomicApp, "suspend", _stay_on_screen)
    async with app.run_test(notifications=True) as pilot:
        await pilot.press(*"text", "ctrl+g")
        await until(pilot, lambda: "ended with 1" in shown(app))
        assert prompt_of(app).text == "text"


def _stay_on_screen(app: AtomicApp) -> Any:
    from contextlib import nullcontext

    return nullcontext()
