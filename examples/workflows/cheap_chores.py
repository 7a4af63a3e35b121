"""A strong model for the work, a cheap one for chores: `atomic run cheap-chores "speed up the parser"`.

`--chores MODEL` chooses the cheap one, `--model work=MODEL` the strong one. `atomic models` lists their names. It
begins only without uncommitted files, so that the commit has the agent's work and nothing else.
"""

from __future__ import annotations

from typing import Any

from atomic.workflows import NodeContext, State, WorkflowRuntime, WorkflowStateParams, graph

name = "cheap-chores"
description = "Work with the usual model, write the commit message with a cheap one"
argument_hint = "WHAT TO DO"
default_config = {"chores": "haiku"}
config_descriptions = {"chores": "the model for the commit message"}
node_descriptions = {"work": "Working", "message": "Writing the commit message", "commit": "Committing"}


class ChoresState(State):
    prompt: str = ""
    chores: str = ""
    message: str = ""


def create_state(params: WorkflowStateParams) -> ChoresState:
    return ChoresState(prompt=params.prompt, chores=params.config["chores"])


async def git(ctx: NodeContext[ChoresState, Any], *words: str) -> str:
    """Run git and return its output. Raise RuntimeError if it fails."""
    done = await ctx.exec("git", *words)
    if done.exit_code:
        raise RuntimeError(f"git {words[0]}: {done.stderr or done.stdout}")
    return done.stdout.strip()


async def begin(ctx: NodeContext[ChoresState]) -> None:
    if files := await git(ctx, "status", "--porcelain"):
        raise RuntimeError(f"commit or stash these files first:\n{files}")


async def message(ctx: NodeContext[ChoresState, WorkflowRuntime]) -> dict[str, str]:
    await git(ctx, "add", "--all")  # new files too
    diff = await git(ctx, "diff", "--cached")
    if not diff:
        return {}
    prompt = f"Write a commit message of one line for this change. Answer only with it.\n\n{diff[:20_000]}"
    answer = await ctx.deps.turn(prompt, model=ctx.state.chores, tools=[], strict=False)
    return {"message": answer.strip()}


async def commit(ctx: NodeContext[ChoresState]) -> None:
    if await git(ctx, "diff", "--cached", "--name-only"):  # else a kill came after the commit, or there is no change
        await git(ctx, "commit", "--quiet", "--message", ctx.state.message)


workflow = (
    graph(ChoresState)
    .node("begin", begin)
    .agent("work", lambda state: f"{state.prompt}\n\nDo not commit.")
    .node("message", message)
    .node("commit", commit)
    .compile()
)
