"""Parse the public names of steps."""

from __future__ import annotations

import pytest

from atomic.base.step_names import local_node, split_first, without_items


@pytest.mark.parametrize(
    ("step", "first", "path"),
    [
        ("work", ("work", "", ""), "work"),
        ("work[1]", ("work", "[1]", ""), "work"),
        ("work[a/b]", ("work", "[a/b]", ""), "work"),
        ("work[a/b]/fix[2]", ("work", "[a/b]", "fix[2]"), "work/fix"),
        ("outer/inner/x", ("outer", "", "inner/x"), "outer/inner/x"),
        ("outer/work[a/b/c]/x[0][d/e]", ("outer", "", "work[a/b/c]/x[0][d/e]"), "outer/work/x"),
        ("work[a[b]/c]/x", ("work", "[a[b]/c]", "x"), "work/x"),
        ("work[a]b]/x", ("work", "[a]b]", "x"), "work/x"),
        ("", ("", "", ""), ""),
    ],
)
def test_items_differ_from_nodes_even_if_their_ids_have_slashes(
    step: str, first: tuple[str, str, str], path: str
) -> None:
    assert split_first(step) == first
    assert without_items(step) == path
    assert local_node(step) == path.rpartition("/")[2]
