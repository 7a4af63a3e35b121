"""Test which files `EntityRegistry.load(providers=…)` reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomic.base.errors import AtomicError
from atomic.entities import EntityRegistry


def test_built_in_entities_are_loaded_for_every_provider(tmp_path: Path) -> None:
    everything = EntityRegistry.load(project=tmp_path, user=tmp_path / "home")
    claude = EntityRegistry.load(project=tmp_path, user=tmp_path / "home", providers=["claude"])
    names = [entity.name for entity in everything.all("agent")]
    assert names
    assert [entity.name for entity in claude.all("agent")] == names


def test_the_error_for_an_unknown_provider_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(AtomicError) as caught:
        EntityRegistry.load(project=tmp_path, providers=["clade"])
    assert str(caught.value) == (
        'Unknown provider "clade" (did you mean "claude"?); there are atomic, claude, opencode, copilot'
    )
