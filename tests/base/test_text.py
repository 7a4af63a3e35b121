"""Durations and texts in columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.base.text import cut, duration, width
from atomic.config.schema import read_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0s"),
        (0, "0s"),
        (0.04, "0s"),
        (0.4, "0.4s"),
        (5, "5s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.6, "60s"),
        (90, "90s"),
        (119.6, "2m"),
        (185, "3m05s"),
        (1800, "30m"),
        (3599.6, "1h"),
        (5400, "1h30m"),
        (7620, "2h07m"),
    ],
)
def test_a_duration_is_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@given(st.integers(1, 400_000))
def test_a_duration_is_a_value_that_a_flag_takes(seconds: int) -> None:
    assert abs(read_duration(duration(seconds)) - seconds) < 60


@given(st.text(), st.integers(1, 40))
def test_a_cut_text_fits(text: str, limit: int) -> None:
    assert width(cut(text, limit)) <= limit
    assert cut(text, limit) == text or cut(text, limit).endswith("…")
