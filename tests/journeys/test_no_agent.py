"""Atomic without any agent: what is missing is named in one line each, and the demo needs none."""

from __future__ import annotations

import pytest

from tests.journeys.conftest import Newcomer

pytestmark = pytest.mark.full


async def test_a_newcomer_without_an_agent_sees_the_demo_and_what_to_install(newcomer: Newcomer) -> None:
    newcomer.makes_repository()
    for line in ("atomic -p hello", "atomic run ralph 'add a login page'"):
        refused = newcomer.types(line)
        assert refused.returncode == 1, line
        [message] = refused.stderr.splitlines()
        assert "atomic demo" in message or "atomic doctor" in message, line
    doctor = newcomer.types("atomic doctor")
    assert (doctor.returncode, doctor.stderr) == (1, "")
    for name in ("claude", "opencode", "copilot"):
        assert name in doctor.stdout
    demo = newcomer.types("atomic demo")
    assert demo.returncode == 0, demo.stderr
    assert "# Ralph completed" in demo.stdout
