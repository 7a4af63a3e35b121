"""Messages about a branch that a turn left have the names of git, letter by letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomic.git import find_repository
from atomic.ralph.position import Position, position_of, prompt_to_return
from tests.support.repositories import git, new_repository


@pytest.mark.parametrize(
    ("move", "sentence"),
    [
        (["switch", "-q", "-c", "Other/XYZ-2"], "The turn left the branch Feature/ABC-1 for Other/XYZ-2."),
        (["switch", "-q", "--detach"], "The turn left the branch Feature/ABC-1 for no branch (HEAD is "),
        (["commit", "-q", "--amend", "-m", "Other"], "The turn rewrote the history of Feature/ABC-1: commit "),
    ],
)
async def test_the_prompt_of_a_worker_keeps_capital_letters(tmp_path: Path, move: list[str], sentence: str) -> None:
    folder = new_repository(tmp_path / "project", {"a": "1"})
    git(folder, "switch", "-q", "-c", "Feature/ABC-1")
    repository = find_repository(folder)
    assert repository is not None
    allowed: Position = await position_of(repository)
    git(folder, *move)
    prompt = await prompt_to_return(repository, allowed, await position_of(repository))
    assert prompt.startswith(sentence)
