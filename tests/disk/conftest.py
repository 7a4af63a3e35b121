"""Share one traced run among all tests that only read it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.disk.cases import Case, traced


@pytest.fixture(scope="session")
def watched() -> Iterator[Case]:
    with traced() as case:
        yield case
