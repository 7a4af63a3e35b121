"""A workflow that asks: `atomic run release` writes notes and waits for an approval before it tags.

In a terminal it asks there. Elsewhere the run pauses (exit code 5) and prints how to answer. Days later
`atomic answer ID approve yes` continues it, and no step before the question runs again.
"""

from __future__ import annotations

from atomic.workflows import NodeContext, Option, State, graph

name = "release"
description = "Write release notes, ask whether they are good, then tag"
argument_hint = "VERSION"
node_descriptions = {"notes": "Writing the notes", "approve": "Waiting for you", "tag": "Tagging"}


class ReleaseState(State):
    prompt: str = ""
    notes: str = ""
    tag: str = ""


def notes_prompt(state: ReleaseState) -> str:
    return f"Write release notes for version {state.prompt} from the git log. Answer with only the notes."


def question(state: ReleaseState) -> str:
    return f"Release {state.prompt} with these notes?\n\n{state.notes}"


async def tag(ctx: NodeContext[ReleaseState]) -> dict[str, str]:
    """Tag the release. A tag that exists already was made by this step before a kill."""
    version = ctx.state.prompt
    found = await ctx.exec("git", "tag", "--list", version)
    if not found.stdout.strip():
        done = await ctx.exec("git", "tag", "--annotate", version, "--message", ctx.state.notes)
        if done.exit_code:
            raise RuntimeError(f"git tag: {done.stderr}")
    return {"tag": version}


workflow = (
    graph(ReleaseState)
    .agent("notes", notes_prompt, output_mapper=lambda answer, state: {"notes": answer})
    .ask_user("approve", question, options=[Option("yes", "tag it"), Option("no", "leave it")])
    .if_(lambda state: state.outputs["approve"] == "yes", then=graph(ReleaseState).node("tag", tag))
    .compile()
)
