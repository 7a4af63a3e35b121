"""With `NO_COLOR` the screen has no colours and is still complete."""

from __future__ import annotations

import pytest

from atomic.config import Settings
from atomic.tui.state.model import EVERYTHING
from atomic.tui.state.store import Store
from tests.tui.app.scripted_client import ScriptedClient, app_with
from tests.tui.snapshots import samples
from tests.tui.snapshots.frames import frame_of


async def test_the_screen_has_no_colours_and_the_chosen_row_is_reversed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = app_with(ScriptedClient(), settings=Settings(theme="light"))
    async with app.run_test(size=(100, 30)) as pilot:
        app.store = Store(samples.answered())
        app.store.screen.tasks = samples.four_tasks()
        await app.learn_commands()
        app.show(EVERYTHING)
        await pilot.press("/")
        await pilot.pause()
        frame = frame_of(app)
    assert {(look.foreground, look.background) for row in frame.looks for look in row} == {("default", "default")}
    rows = ["".join(row) for row in frame.letters]
    chosen = next(at for at, row in enumerate(rows) if "▸ /ralph" in row)
    other = next(at for at, row in enumerate(rows) if "  /release" in row)
    assert all("reverse" in look.signs for look in frame.looks[chosen][2:-2])
    assert not any("reverse" in look.signs for look in frame.looks[other])
    assert any("Refresh endpoint" in row for row in rows)
