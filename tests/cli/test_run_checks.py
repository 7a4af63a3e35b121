"""`atomic workflows check --runs`: the stopped runs that changed code cannot continue."""

from __future__ import annotations

from pathlib import Path

from tests.support.user import User
from tests.support.user_workflows import ledger, session, sessions, workflow

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


def read(folder: Path) -> list[tuple[str, bytes]]:
    return [(file.name, file.read_bytes()) for file in folder.rglob("*") if file.is_file()]
