"""No repository runs code, changes a file outside, or sends more than text."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.hostile import bombs
from tests.hostile.repositories import PROJECTS
from tests.hostile.visit import COMMANDS, Visit

assert bombs  # registers its projects
QUICK = ("recording_that_climbs_one_folder", "settings_that_push_and_spend", "a_package_called_atomic")
ALL = [pytest.param(name, marks=() if name in QUICK else pytest.mark.ci) for name in PROJECTS]


def test_at_least_eighty_hostile_projects_are_tested() -> None:
    assert len(PROJECTS) >= 80


@pytest.mark.parametrize("name", ALL)
async def test_nothing_leaves_a_hostile_repository(tmp_path: Path, name: str) -> None:
    visit = Visit(tmp_path, name)
    for words in COMMANDS:
        await visit.run(words)
    await asyncio.to_thread(visit.open_screen)
