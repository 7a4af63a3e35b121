"""Run a command, and let an agent repair the project until it passes: `atomic run until-green "make test"`.

The command decides, not the agent: it runs after each repair. After five repairs that do not help the run fails, with
the last output. `--commit` leaves a clean checkout: a repair is committed, and work that did not help is stashed.
"""

from __future__ import annotations

from typing import Any

from atomic.workflows import Failed, NodeContext, State, WorkflowStateParams, graph

name = "until-green"
description = "Repair the project until a command passes"
argument_hint = "COMMAND"
default_config = {"attempts": 5, "commit": False}
config_descriptions = {
    "attempts": "this many repairs, then fail",
    "commit": "commit a repair, and stash work that did not help",
}
node_descriptions = {"check": "Running the command", "repair": "Repairing the project"}


class GreenState(State):
    command: str = ""
    attempts: int = 5
    commit: bool = False
    passed: bool = False
    output: str = ""
    checks: int = 0


def create_state(params: WorkflowStateParams) -> GreenState:
    config = params.config
    return GreenState(command=params.prompt or "make test", attempts=config["attempts"], commit=config["commit"])


async def git(ctx: NodeContext[GreenState], *words: str) -> str:
    """Run git and return its output. Raise RuntimeError if it fails."""
    done = await ctx.exec("git", *words)
    if done.exit_code:
        raise RuntimeError(f"git {words[0]}: {done.stderr or done.stdout}")
    return done.stdout.strip()


async def begin(ctx: NodeContext[GreenState]) -> None:
    """Refuse to begin with files of the user: they would be committed with the repair."""
    if ctx.state.commit and (files := await git(ctx, "status", "--porcelain")):
        raise RuntimeError(f"commit or stash these files first:\n{files}")


async def check(ctx: NodeContext[GreenState]) -> dict[str, Any]:
    """Run the command. A red one is a result, not an error."""
    done = await ctx.exec("sh", "-c", ctx.state.command)
    output = (done.stdout + done.stderr)[-4000:]
    return {"passed": done.exit_code == 0, "output": output, "checks": ctx.state.checks + 1}


def repair_prompt(state: GreenState) -> str:
    return f"`{state.command}` fails. Repair the cause, do not change the tests, and do not commit:\n\n{state.output}"


async def finish(ctx: NodeContext[GreenState]) -> Failed | None:
    """Commit the repair, or stash what did not help. After a kill in between, nothing is left to do."""
    state = ctx.state
    has_work = state.commit and state.checks > 1 and await git(ctx, "status", "--porcelain")
    if has_work and state.passed:
        await git(ctx, "add", "--all")
        await git(ctx, "commit", "--quiet", "--message", f"Make {state.command} pass")
    elif has_work:
        await git(ctx, "stash", "push", "--include-untracked", "--message", f"until-green: {state.command} is red")
    if state.passed:
        return None
    place = " (the repairs are in git stash)" if state.commit else ""
    return Failed(f"still red after {state.checks} checks{place}:\n{state.output}")


workflow = (
    graph(GreenState)
    .node("begin", begin)
    .loop(
        graph(GreenState)
        .node("check", check)
        .if_(
            lambda state: not state.passed and state.checks <= state.attempts,
            then=graph(GreenState).agent("repair", repair_prompt),
        ),
        until=lambda state: state.passed or state.checks > state.attempts,
        max_iterations=0,
    )
    .node("finish", finish)
    .compile()
)
