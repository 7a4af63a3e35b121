"""Two reviewers and, if they disagree, a judge: `atomic run two-opinions "is it safe to delete utils/old.py?"`.

The two run at the same time and do not see each other. Give them different agents:
`atomic run two-opinions --agent first=claude --agent second=opencode "…"`.
"""

from __future__ import annotations

import msgspec

from atomic.workflows import State, agent_node, graph

name = "two-opinions"
description = "Ask two agents, and a judge if they disagree"
argument_hint = "QUESTION"
node_descriptions = {"first": "Asking one agent", "second": "Asking another", "judge": "Settling the disagreement"}


class Opinion(msgspec.Struct):
    """An agent's answer."""

    yes: bool
    reason: str


class OpinionState(State):
    prompt: str = ""
    first: Opinion | None = None
    second: Opinion | None = None
    judged: Opinion | None = None


def question(state: OpinionState) -> str:
    return f"{state.prompt}\n\nLook yourself, and change nothing."


def disagree(state: OpinionState) -> bool:
    return state.first is not None and state.second is not None and state.first.yes != state.second.yes


def judge_prompt(state: OpinionState) -> str:
    opinions = [opinion for opinion in (state.first, state.second) if opinion is not None]
    said = "\n".join(f"- {'yes' if opinion.yes else 'no'}: {opinion.reason}" for opinion in opinions)
    return f"{question(state)}\n\nTwo others disagree. Check their reasons:\n{said}"


def answer(state: OpinionState) -> None:
    final = state.judged or state.first
    if final is not None:
        print(f"{'yes' if final.yes else 'no'}: {final.reason}")


workflow = (
    graph(OpinionState)
    .parallel(
        {
            "one": agent_node(
                "first", question, output_schema=Opinion, output_mapper=lambda opinion, state: {"first": opinion}
            ),
            "two": agent_node(
                "second", question, output_schema=Opinion, output_mapper=lambda opinion, state: {"second": opinion}
            ),
        }
    )
    .if_(
        disagree,
        then=[
            agent_node(
                "judge", judge_prompt, output_schema=Opinion, output_mapper=lambda opinion, state: {"judged": opinion}
            )
        ],
    )
    .tool("answer", answer)
    .compile()
)
