"""One traced run serves all tests that only look at it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.disk.cases import Case, traced


@pytest.fixture(scope="session")
def watched() -> Iterator[Case]:
    with traced() as case:
        yield case
