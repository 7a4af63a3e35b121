"""Tab in bash, zsh and fish, after `atomic completion --install`."""

from __future__ import annotations

import pytest

from tests.journeys.conftest import Newcomer
from tests.support.shells import shell
from tests.support.terminal import in_terminal

pytestmark = pytest.mark.full


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
async def test_an_installed_completion_works_in_a_new_shell(newcomer: Newcomer, name: str) -> None:
    installed = newcomer.types("atomic completion --install", SHELL=f"/usr/bin/{name}")
    assert installed.returncode == 0, installed.stderr
    env = {**newcomer.env, "TERM": "dumb", "SHELL": f"/usr/bin/{name}"}
    async with in_terminal(shell(name, "-i"), env=env, cwd=newcomer.project) as terminal:
        terminal.type("echo rea''dy\n")
        await terminal.shows("ready\n")
        terminal.type("atomic sess\t--hel\t\n")
        await terminal.shows("atomic sessions: list, show, export and delete runs")
        terminal.type("exit\n")
        await terminal.exit_code()
