"""Every state matches its reference.

`UPDATE_SNAPSHOTS=1` writes the references again. Look at the images of the states first
(`python -m tests.tui.snapshots.images`).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tui.snapshots.capture import SIZES, frames_of
from tests.tui.snapshots.frames import as_text, find_unreadable
from tests.tui.snapshots.states import STATES

REFERENCES = Path(__file__).with_name("references")


def reference(name: str, size: str) -> Path:
    return REFERENCES / size / f"{name}.txt"


QUICK = "80x24"


@pytest.mark.parametrize(
    "size", [QUICK, *(pytest.param(size, marks=pytest.mark.ci) for size in SIZES if size != QUICK)]
)
async def test_states_match_their_references(size: str) -> None:
    states = [state for state in STATES if size in state.sizes]
    other: list[str] = []
    async for state, frames in frames_of(states, size):
        text = as_text(frames)
        file = reference(state.name, size)
        if os.environ.get("UPDATE_SNAPSHOTS"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        elif not file.exists() or file.read_text("utf-8") != text:
            other.append(f"{state.name}: {_difference(file, text)}")
        other += [
            f"{state.name} in {theme}: {words}" for theme, frame in frames.items() for words in find_unreadable(frame)
        ]
    assert not other, "\n".join([*other, "Check the images, then run with UPDATE_SNAPSHOTS=1 to accept the changes."])


def test_every_reference_has_a_state() -> None:
    wanted = {reference(state.name, size) for state in STATES for size in state.sizes}
    assert set(REFERENCES.glob("*/*.txt")) == wanted


def test_at_least_forty_states_have_unique_names() -> None:
    assert len({state.name for state in STATES}) >= 40
    assert len({state.name for state in STATES}) == len(STATES)


def _difference(file: Path, text: str) -> str:
    """Describe the first line that differs."""
    if not file.exists():
        return "has no reference"
    old = file.read_text("utf-8").splitlines()
    new = text.splitlines()
    for at, (before, after) in enumerate(zip(old, new, strict=False), 1):
        if before != after:
            return f"line {at}\n  was {before!r}\n  is  {after!r}"
    return f"has {len(new)} lines instead of {len(old)}"
