from __future__ import annotations

import pytest

from atomic.errors import closest


@pytest.mark.parametrize(
    ("name", "nearest"), [("comit", "commit"), ("COMMIT", "commit"), ("redme", "ReadMe"), ("zebra", None), ("", None)]
)
def test_a_wrong_name_gets_the_nearest_known_one(name: str, nearest: str | None) -> None:
    assert closest(name, ["commit", "ReadMe", "plan"]) == nearest


def test_nothing_is_near_where_nothing_is_known() -> None:
    assert closest("commit", []) is None
