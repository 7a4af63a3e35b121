"""Workers of these tests commit, also for a user whose git knows no name."""

from __future__ import annotations

import pytest

from tests.support.repositories import ENVIRONMENT


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
