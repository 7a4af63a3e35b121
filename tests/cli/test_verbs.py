"""Every verb names a function that runs it."""

from __future__ import annotations

import inspect

import pytest

from atomic.base.arguments import Arguments
from atomic.cli.verbs import VERBS, Verb

RUNNABLE = [verb for group in VERBS.values() for verb in (group, *group.verbs.values()) if verb.run]


@pytest.mark.parametrize("verb", RUNNABLE, ids=lambda verb: verb.path)
def test_a_verb_names_a_function_that_takes_its_arguments(verb: Verb) -> None:
    parameters = inspect.signature(verb.load(), eval_str=True).parameters.values()
    assert [parameter.annotation for parameter in parameters] == [Arguments]


def test_a_verb_either_runs_or_is_a_group() -> None:
    assert all(bool(verb.run) != bool(verb.verbs) for verb in VERBS.values())
