"""From an issue to a pull request: `atomic run issue-to-pr 12`, with your own `git` and `gh`.

An agent works on the branch `issue-12`. The check must pass before anything is pushed. A step that a kill has cut off,
and a second run for the same issue, find what is already there: one branch with all its commits, one pull request.
"""

from __future__ import annotations

import json
from typing import Any

from atomic.workflows import NodeContext, State, WorkflowRuntime, WorkflowStateParams, graph

name = "issue-to-pr"
description = "Read an issue, solve it on a branch, run the check, open a pull request"
argument_hint = "NUMBER"
default_config = {"check": "make test"}
config_descriptions = {"check": "a command that must pass before the push"}
node_descriptions = {"read": "Reading the issue", "work": "Working on it", "check": "Checking", "publish": "Publishing"}


class IssueState(State):
    number: str = ""
    command: str = ""
    title: str = ""
    body: str = ""
    url: str = ""


def create_state(params: WorkflowStateParams) -> IssueState:
    return IssueState(number=params.prompt.lstrip("#"), command=params.config["check"])


def branch(state: IssueState) -> str:
    return f"issue-{state.number}"


async def run(ctx: NodeContext[IssueState, Any], *command: str) -> str:
    """Run a program and return its output. Raise RuntimeError if it fails."""
    done = await ctx.exec(*command)
    if done.exit_code:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done.stdout.strip()


async def read(ctx: NodeContext[IssueState]) -> dict[str, str]:
    found = json.loads(await run(ctx, "gh", "issue", "view", ctx.state.number, "--json", "title,body"))
    name = branch(ctx.state)
    if await run(ctx, "git", "branch", "--list", name):
        await run(ctx, "git", "switch", name)  # of an earlier run: its commits stay
    else:
        await run(ctx, "git", "switch", "--create", name)
    return {"title": found["title"], "body": found["body"]}


def work_prompt(state: IssueState) -> str:
    return f"Solve this issue and commit the result. Do not push.\n\n# {state.title}\n\n{state.body}"


async def check(ctx: NodeContext[IssueState]) -> None:
    await run(ctx, "sh", "-c", ctx.state.command)


async def publish(ctx: NodeContext[IssueState, WorkflowRuntime]) -> dict[str, str]:
    """Push, and open a pull request unless the branch has one."""
    name = branch(ctx.state)
    await run(ctx, "git", "push", "--set-upstream", "origin", name)
    url = await run(ctx, "gh", "pr", "list", "--head", name, "--json", "url", "--jq", ".[].url")
    if not url:
        text = f"Closes #{ctx.state.number}"
        url = await run(ctx, "gh", "pr", "create", "--head", name, "--title", ctx.state.title, "--body", text)
    return {"url": url}


def show(state: IssueState) -> None:
    print(state.url)


workflow = (
    graph(IssueState)
    .node("read", read)
    .agent("work", work_prompt)
    .node("check", check)
    .node("publish", publish)
    .tool("show", show)
    .compile()
)
