"""Commands by name: clashes, who wins, the order of a search, and how long it takes."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.commands import (
    Category,
    Command,
    CommandClashError,
    CommandError,
    CommandNotFoundError,
    CommandRegistry,
    builtin_commands,
)
from tests.commands.fakes import command, nothing
from tests.support.timing import judge

SEARCH_LIMIT = 0.002  # seconds, of the issue
PRECEDENCE = ["builtin", "workflow", "skill", "command", "agent"]


def names(commands: list[Command]) -> list[str]:
    return [command.name for command in commands]


def test_a_command_is_found_by_name_and_alias_whatever_the_case() -> None:
    commit = command("Commit", "skill", "ci")
    registry = CommandRegistry([commit])
    assert registry.get("commit") is registry.get("COMMIT") is registry.get("Ci") is commit
    assert registry.get("c") is None


@pytest.mark.parametrize(
    ("clashing", "message"),
    [
        (command("commit"), 'The name "/commit" is taken: there is "/commit" already'),
        (command("CI"), 'The name "/CI" is taken: there is an alias of "/commit" already'),
        (command("x", "agent", "y", "Commit"), 'The alias "/Commit" of "/x" is taken: there is "/commit" already'),
        (command("x", "agent", "y", "ci"), 'The alias "/ci" of "/x" is taken: there is an alias of "/commit" already'),
    ],
)
def test_a_clash_is_an_error_and_leaves_the_registry_unchanged(clashing: Command, message: str) -> None:
    commit = command("commit", "skill", "ci")
    registry = CommandRegistry([commit])
    with pytest.raises(CommandClashError) as caught:
        registry.register(clashing)
    assert str(caught.value) == message
    assert registry.all() == registry.search("") == [commit]
    assert (registry.get("x"), registry.get("y"), registry.get("ci")) == (None, None, commit)


def test_a_removed_name_is_free_again() -> None:
    registry = CommandRegistry([command("commit", "skill", "ci")])
    assert registry.unregister("COMMIT")
    assert (registry.get("commit"), registry.get("ci"), registry.all()) == (None, None, [])
    assert not registry.unregister("commit")
    registry.register(command("ci", "agent", "commit"))
    assert registry.get("commit") is registry.get("ci") is not None


def test_an_alias_equal_to_its_own_name_does_not_clash() -> None:
    registry = CommandRegistry([command("commit", "skill", "Commit", "ci", "CI")])
    assert registry.unregister("commit")
    assert registry.get("ci") is None


def test_a_search_gives_the_exact_one_then_by_category_then_by_name() -> None:
    everything = [
        command("re", "builtin"), command("reset", "builtin"), command("rename", "builtin"),
        command("review", "agent"), command("read", "agent"),
        command("refine", "command"), command("rebase", "skill"), command("Recap", "skill"),
        command("redo", "workflow"), command("run", "workflow", "rerun"), command("other", "workflow"),
    ]  # fmt: skip
    order = ["re", "redo", "run", "rebase", "Recap", "refine", "read", "review", "rename", "reset"]
    for commands in (everything, everything[::-1]):
        registry = CommandRegistry(commands)
        assert names(registry.search("re")) == order
        assert names(registry.search("RE")) == order
        assert names(registry.search("rerun")) == ["run"]
        assert names(registry.search("redoing")) == []


def test_an_alias_that_was_typed_in_full_comes_first() -> None:
    registry = CommandRegistry([*builtin_commands(), command("hello", "workflow")])
    assert names(registry.search("h")) == ["help", "hello"]
    assert names(registry.search("he")) == ["hello", "help"]


def test_hidden_ones_are_never_suggested_but_can_be_called() -> None:
    secret = command("secret", hidden=True)
    registry = CommandRegistry([secret, command("second")])
    assert names(registry.search("")) == names(registry.search("se")) == ["second"]
    assert registry.search("secret") == []
    assert registry.get("secret") is secret
    with pytest.raises(CommandNotFoundError, match=r"\(/help lists them\)$"):
        registry.require("secrte")


def test_an_unknown_name_is_an_error_with_the_nearest() -> None:
    registry = CommandRegistry([command("commit", "skill", "ship-it"), command("compact", "builtin")])
    assert registry.require("Commit").name == "commit"
    with pytest.raises(CommandNotFoundError, match=r'^Command not found: "/comit" \(did you mean "/commit"\?\)$'):
        registry.require("comit")
    with pytest.raises(CommandNotFoundError, match=r'^Command not found: "/shipit" \(did you mean "/ship-it"\?\)$'):
        registry.require("shipit")
    with pytest.raises(CommandNotFoundError, match=r'^Command not found: "/zzz" \(/help lists them\)$'):
        registry.require("zzz")


def test_an_unknown_category_is_refused() -> None:
    wrong = Command("x", "", "builtins", nothing)  # pyright: ignore[reportArgumentType]  # a plain text is let through
    with pytest.raises(CommandError, match='"/x" has no category "builtins": it is one of builtin, workflow,'):
        CommandRegistry([wrong])


@given(st.permutations(PRECEDENCE), st.integers(1, 5))
def test_the_same_name_in_two_kinds_has_one_winner_whatever_the_order(kinds: list[str], count: int) -> None:
    present = sorted(kinds[:count], key=PRECEDENCE.index)
    registry = CommandRegistry.of(
        command("Plan" if place else "plan", kind) for place, kind in enumerate(kinds[:count])
    )
    winner = registry.get("plan")
    assert winner is not None
    assert winner.category == present[0]
    assert [(one.command.category, one.by) for one in registry.shadowed()] == [(kind, winner) for kind in present[1:]]
    assert registry.all() == [winner]


def test_an_alias_of_a_stronger_kind_takes_a_name_too() -> None:
    registry = CommandRegistry.of([command("q", "skill"), *builtin_commands()])
    (lost,) = registry.shadowed()
    assert (lost.word, lost.command.category, lost.by.name) == ("q", Category.SKILL, "exit")
    assert registry.require("q").name == "exit"


def test_who_loses_an_alias_keeps_its_name() -> None:
    registry = CommandRegistry.of([command("leave", "skill", "q", "bye"), *builtin_commands()])
    assert registry.require("leave") is registry.require("bye")
    assert registry.require("leave").aliases == ("bye",)
    assert [(lost.word, lost.by.name) for lost in registry.shadowed()] == [("q", "exit")]


def test_within_one_kind_a_name_beats_an_alias() -> None:
    commands = [command("commit", "skill", "ci"), command("ci", "skill")]
    for given_ in (commands, commands[::-1]):
        registry = CommandRegistry.of(given_)
        assert registry.require("ci").name == "ci"
        assert registry.require("commit").aliases == ()


def test_who_lost_takes_no_aliases_with_it() -> None:
    registry = CommandRegistry.of([command("help", "agent", "assist"), *builtin_commands()])
    assert registry.get("assist") is None


@pytest.mark.timed
def test_a_search_while_typing_takes_no_time() -> None:
    kinds = ["workflow", "skill", "command", "agent"]
    registry = CommandRegistry(command(f"name-{n:04}", kinds[n % 4], f"alias-{n}") for n in range(1000))
    for text in ("", "n", "name-05", "alias-999", "zzz"):
        registry.search(text)
        judge(min(seconds(registry, text) for _ in range(20)), SEARCH_LIMIT)


def seconds(registry: CommandRegistry, text: str) -> float:
    before = process_time()
    registry.search(text)
    return process_time() - before
