"""Trust and recordings agree on the file names that steer programs."""

from __future__ import annotations

import pytest

from atomic.git.apply import steers
from atomic.loading import trusted_files


def test_every_file_that_trust_checks_is_below_a_steering_name() -> None:
    assert [path for path in trusted_files.LOOKED_FOR if not steers(path)] == []


@pytest.mark.parametrize(
    "path", [".git", "a/.GIT/hooks/x", "a\\.git\\x", ".git.", ".git ", ".gi\u200ct/x", "GIT~1/config", ".git::$INDEX"]
)
def test_other_spellings_of_a_name_steer_too(path: str) -> None:
    assert steers(path)


@pytest.mark.parametrize("path", ["git", ".gitignore", "src/atomic/config.toml", "docs/.claudette", "opencode.json.md"])
def test_ordinary_files_do_not_steer(path: str) -> None:
    assert not steers(path)
