"""Prose of the documentation fits into 100 columns, so that a diff shows what has changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_paths import DOCUMENTS, FENCE, ROOT

COLUMNS = 100
GENERATED = ("docs/providers.md", "docs/benchmarks.md", "docs/reference/api.md", "docs/reference/cli.md")
WRITTEN = [path for path in DOCUMENTS if str(path.relative_to(ROOT)) not in GENERATED]


@pytest.mark.parametrize("document", WRITTEN, ids=[str(path.relative_to(ROOT)) for path in WRITTEN])
def test_prose_is_wrapped(document: Path) -> None:
    prose = FENCE.sub("", document.read_text(encoding="utf-8"))
    lines = [line for line in prose.splitlines() if len(line) > COLUMNS]
    assert [line for line in lines if not cannot_be_wrapped(line)] == []


def cannot_be_wrapped(line: str) -> bool:
    """Return whether a line is a row of a table, an image, a heading, or one long word or code span."""
    words = re.sub(r"`[^`]*`", "x", line).split()
    return line.lstrip().startswith(("|", "!", "#")) or len(words) <= 2
