from __future__ import annotations

import pytest

from atomic.base.errors import closest, did_you_mean, suggest


@pytest.mark.parametrize(
    ("name", "nearest"), [("comit", "commit"), ("COMMIT", "commit"), ("redme", "ReadMe"), ("zebra", None), ("", None)]
)
def test_a_wrong_name_gets_the_nearest_known_one(name: str, nearest: str | None) -> None:
    assert closest(name, ["commit", "ReadMe", "plan"]) == nearest


def test_no_name_is_suggested_if_none_is_known() -> None:
    assert closest("commit", []) is None


@pytest.mark.parametrize(
    ("name", "otherwise", "prefix", "hint"),
    [
        ("comit", "", "", ' (did you mean "commit"?)'),
        ("comit", "/help lists them", "/", ' (did you mean "/commit"?)'),
        ("zebra", "/help lists them", "/", " (/help lists them)"),
        ("zebra", "", "", ""),
    ],
)
def test_a_hint_follows_a_message(name: str, otherwise: str, prefix: str, hint: str) -> None:
    assert did_you_mean(name, ["commit", "plan"], otherwise=otherwise, prefix=prefix) == hint
    assert suggest(name, ["commit", "plan"], otherwise=otherwise, prefix=prefix) == hint.strip(" ()")
