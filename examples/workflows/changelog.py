"""Write CHANGELOG.md from the commits since the last tag: `atomic run changelog`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from atomic.workflows import NodeContext, State, agent_node, graph

name = "changelog"
description = "Write the changelog from the commits since the last tag"
node_descriptions = {"commits": "Reading the commits", "write": "Writing the entries", "publish": "Waiting for you"}


class Entries(msgspec.Struct):
    """The agent's answer."""

    entries: list[str]


class ChangelogState(State):
    log: str = ""
    entries: list[str] = []


async def commits(ctx: NodeContext[ChangelogState]) -> dict[str, str]:
    tag = await ctx.exec("git", "describe", "--tags", "--abbrev=0")
    since = f"{tag.stdout.strip()}..HEAD" if tag.exit_code == 0 else "HEAD"
    log = await ctx.exec("git", "log", "--no-merges", "--format=%s%n%b", since)
    return {"log": log.stdout}


def prompt(state: ChangelogState) -> str:
    return f"Write changelog entries for users from these commits, the most important first.\n\n{state.log}"


def text(state: ChangelogState) -> str:
    return "\n".join(f"* {entry}" for entry in state.entries)


def save(state: ChangelogState) -> None:
    Path("CHANGELOG.md").write_text(f"# Changelog\n\n{text(state)}\n", encoding="utf-8")


workflow = (
    graph(ChangelogState)
    .node("commits", commits)
    .then(
        agent_node(
            "write",
            prompt,
            output_schema=Entries,
            output_mapper=lambda answer, state: {"entries": answer.entries},
        )
    )
    .ask_user("publish", lambda state: f"{text(state)}\n\nWrite this to CHANGELOG.md?", options=["yes", "no"])
    .if_(lambda state: state.outputs["publish"] == "yes", then=graph(ChangelogState).tool("save", save))
    .compile()
)
