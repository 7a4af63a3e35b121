"""Names that steer programs: trust and recordings mean the same ones."""

from __future__ import annotations

import pytest

from atomic.base.steering import steers
from atomic.loading import trusted_files


def test_all_that_trust_looks_for_is_below_a_name_that_steers() -> None:
    assert [path for path in trusted_files.LOOKED_FOR if not steers(path)] == []


@pytest.mark.parametrize(
    "path", [".git", "a/.GIT/hooks/x", "a\\.git\\x", ".git.", ".git ", ".gi\u200ct/x", "GIT~1/config", ".git::$INDEX"]
)
def test_other_spellings_of_a_name_steer_too(path: str) -> None:
    assert steers(path)


@pytest.mark.parametrize("path", ["git", ".gitignore", "src/atomic/config.toml", "docs/.claudette", "opencode.json.md"])
def test_ordinary_files_do_not_steer(path: str) -> None:
    assert not steers(path)
