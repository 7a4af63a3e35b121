"""`atomic workflows check --runs`: the stopped runs that changed code cannot continue."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.user import User
from tests.support.user_workflows import HEAD, ledger, session, sessions, workflow

GRAPH = """
async def first(ctx): note("first")
async def second(ctx): note("second", await ctx.ask("Go on?"))

workflow = graph(S).node("{first}", first).node("second", second)
"""
FUNCTION = """
@step
async def {name}(n: int) -> int:
    note("{name}", n)
    return n

@workflow
async def pay(flow: Flow) -> str:
    await {name}(2)
    {more}
    return await flow.ask("Sure?")
"""


async def paused_runs(user: User) -> tuple[str, str]:
    """Start a graph and a function that ask a question, and return the ids of the runs."""
    workflow(user, "chain", GRAPH.format(first="first"))
    workflow(user, "pay", FUNCTION.format(name="charge", more=""))
    for name in ("chain", "pay"):
        paused = await user.atomic("run", name)
        assert paused.exit_code == 5, paused.stderr
    chain, pay = sorted(
        sessions(user), key=lambda folder: "charge" in (folder / "journal.db").read_bytes().decode("latin")
    )
    return chain.name, pay.name


async def test_code_that_did_not_change_continues_all_runs(user: User) -> None:
    assert "no stopped runs in this folder" in (await user.atomic("workflows", "check", "--runs")).stderr
    await paused_runs(user)
    checked = await user.atomic("workflows", "check", "--runs")
    assert (checked.exit_code, checked.stdout) == (0, ""), checked.stdout
    assert "2 stopped runs of this folder, all can continue" in checked.stderr


async def test_runs_that_changed_code_cannot_continue_are_listed_with_the_reason(user: User) -> None:
    chain, pay = await paused_runs(user)
    workflow(user, "chain", GRAPH.format(first="begin"))
    workflow(user, "pay", FUNCTION.format(name="refund", more=""))
    before = {folder: sorted(read(folder)) for folder in sessions(user)}
    checked = await user.atomic("workflows", "check", "--runs")
    assert checked.exit_code == 1, checked.stderr
    lines = dict(line.split(": ", 1) for line in checked.stdout.splitlines())
    assert "first" in lines[f"{chain} chain"]
    assert "charge(2), is now refund(2)" in lines[f"{pay} pay"]
    assert "2 of 2 stopped runs cannot continue" in checked.stderr
    # A check records nothing and runs nothing: the old code still continues both.
    assert {folder: sorted(read(folder)) for folder in sessions(user)} == before
    assert ledger(user) == ["first", "charge 2"]
    workflow(user, "chain", GRAPH.format(first="first"))
    workflow(user, "pay", FUNCTION.format(name="charge", more=""))
    for id in (chain, pay):
        done = await user.atomic("answer", id, "yes")
        assert done.exit_code == 0, done.stderr
    assert ledger(user) == ["first", "charge 2", "second yes"]


async def test_a_harmless_edit_of_a_function_continues(user: User) -> None:
    workflow(user, "pay", FUNCTION.format(name="charge", more=""))
    assert (await user.atomic("run", "pay")).exit_code == 5
    workflow(user, "pay", FUNCTION.format(name="charge", more="limit = 2 * 3"))
    checked = await user.atomic("workflows", "check", "--runs")
    assert (checked.exit_code, checked.stdout) == (0, ""), checked.stdout


@pytest.mark.ci
async def test_a_workflow_that_is_gone_and_a_run_that_is_over(user: User) -> None:
    workflow(user, "pay", FUNCTION.format(name="charge", more=""))
    assert (await user.atomic("run", "pay")).exit_code == 5
    (user.home / ".atomic" / "workflows" / "pay.py").rename(user.home / "pay.py")
    checked = await user.atomic("workflows", "check", "--runs")
    assert checked.exit_code == 1
    assert "pay.py" in checked.stdout
    (user.home / "pay.py").rename(user.home / ".atomic" / "workflows" / "pay.py")
    assert (await user.atomic("answer", session(user)["id"], "yes")).exit_code == 0
    assert "no stopped runs" in (await user.atomic("workflows", "check", "--runs")).stderr


async def test_a_run_that_is_over_for_good_is_not_counted(user: User) -> None:
    workflow(user, "no", "@workflow\nasync def no(flow: Flow) -> Failed:\n    return Failed('not wanted')\n")
    assert (await user.atomic("run", "no")).exit_code == 1
    assert session(user)["status"] == "failed"
    checked = await user.atomic("workflows", "check", "--runs")
    assert checked.exit_code == 0
    assert "no stopped runs in this folder" in checked.stderr


ENDS = """
@workflow
async def pay(flow: Flow) -> str:
    print("to standard output")
    os.write(1, b"past Python")
    answer = await flow.ask("Sure?")
    {more}
    return answer + await flow.ask("Really?")
"""


@pytest.mark.ci
async def test_what_a_function_prints_is_not_shown_and_the_process_that_it_ends_is_another_one(user: User) -> None:
    workflow(user, "pay", ENDS.format(more=""))
    workflow(user, "quick", FUNCTION.format(name="charge", more=""))
    assert (await user.atomic("run", "pay")).exit_code == 5
    paused = session(user)["id"]
    assert (await user.atomic("answer", paused, "yes")).exit_code == 5
    assert (await user.atomic("run", "quick")).exit_code == 5
    checked = await user.atomic("workflows", "check", "--runs")
    assert (checked.exit_code, checked.stdout) == (0, ""), checked.stdout
    assert "to standard output" not in checked.stderr
    assert "past Python" not in checked.stderr
    assert "2 stopped runs of this folder, all can continue" in checked.stderr
    workflow(user, "pay", ENDS.format(more="os._exit(7)"))
    checked = await user.atomic("workflows", "check", "--runs")
    assert checked.exit_code == 1
    (line,) = checked.stdout.splitlines()
    assert line.startswith(f"{paused} pay: its code has ended the process of the check with exit code 7")
    assert "1 of 2 stopped runs cannot continue" in checked.stderr


@pytest.mark.ci
async def test_a_changed_file_that_was_run_by_its_path_is_tried_when_it_is_named(user: User) -> None:
    file = user.project / "flow.py"
    file.write_text(HEAD + FUNCTION.format(name="charge", more=""))
    assert (await user.atomic("run", "./flow.py")).exit_code == 5
    assert (await user.atomic("workflows", "check", "--runs")).exit_code == 0
    file.write_text(HEAD + FUNCTION.format(name="charge", more="limit = 2"))
    checked = await user.atomic("workflows", "check", "--runs")
    assert checked.exit_code == 1
    assert "has changed since this run was started: look at it, and name it to try it" in checked.stdout
    checked = await user.atomic("workflows", "check", "--runs", "./flow.py")
    assert (checked.exit_code, checked.stdout) == (0, ""), checked.stdout
    file.write_text(HEAD + FUNCTION.format(name="refund", more=""))
    checked = await user.atomic("workflows", "check", "--runs", "flow.py")
    assert checked.exit_code == 1
    assert "charge(2), is now refund(2)" in checked.stdout
    for words in (("flow.py",), ("--runs", "flew.py")):
        assert (await user.atomic("workflows", "check", *words)).exit_code == 2


def read(folder: Path) -> list[tuple[str, bytes]]:
    return [(file.name, file.read_bytes()) for file in folder.rglob("*") if file.is_file()]
