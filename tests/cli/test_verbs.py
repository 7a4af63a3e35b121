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


def test_a_verb_runs_or_is_a_group_or_stands_for_other_words() -> None:
    assert all([bool(verb.run), bool(verb.verbs), bool(verb.stands_for)].count(True) == 1 for verb in VERBS.values())


@pytest.mark.parametrize("verb", [verb for verb in VERBS.values() if verb.stands_for], ids=lambda verb: verb.name)
def test_a_shorthand_stands_for_words_of_a_verb(verb: Verb) -> None:
    name, *rest = verb.stands_for
    group = VERBS[name]
    assert group.verbs[rest[0]].run if group.verbs else group.run
