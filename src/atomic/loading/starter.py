"""The file that `atomic workflows new` writes, from the line of dashes on."""

# ------------------------------------------------------------------------------------------------------------------
# A workflow that writes a draft and reviews it until it is good. Change it as you like and run it again:
#
#   atomic run my-flow "a limerick about version control"
#
# `atomic workflows check` shows all problems of it, `atomic workflows graph my-flow` draws it.
#
# Test it without an agent and without tokens. Record one good run, then play it at each save of this file:
#
#   atomic run my-flow --record my-flow.jsonl "a limerick about version control"
#   atomic workflows dev my-flow --recording my-flow.jsonl "a limerick about version control"

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from atomic.workflows import RunEnd, State, WorkflowStateParams, graph, reducers

# These are read without running the file, so write them as plain values.
description = "Write a draft, then review and improve it"
argument_hint = "WHAT TO WRITE"
version = "1.0.0"
default_config = {"rounds": 2}  # --rounds 3 changes it, and [workflows.my-flow] in ~/.atomic/config.toml
config_descriptions = {"rounds": "at most this many reviews"}
node_descriptions = {"draft": "Writing a draft", "review": "Reviewing it", "improve": "Improving it"}


class Review(msgspec.Struct, frozen=True):
    """The reviewer's answer.

    The agent is asked for JSON of this type; any other answer fails the step.
    """

    verdict: Literal["good", "improve"]
    weakness: str = ""


class FlowState(State):
    """The data that nodes share.

    It is recorded after every step, so a run can be resumed.
    """

    prompt: str = ""
    rounds: int = 2
    text: str = ""
    review: Review = Review("improve")
    reviews: Annotated[int, reducers.sum] = 0  # nodes add to it


def create_state(params: WorkflowStateParams) -> FlowState:
    """Return the first state, from the prompt and the configuration."""
    return FlowState(prompt=params.prompt, rounds=params.config["rounds"])


def at_end(end: RunEnd) -> str | None:
    """Return the result, which is printed when the run is completed."""
    return end.state.text if end.status == "completed" else None


def is_good(state: FlowState) -> bool:
    return state.review.verdict == "good"


REVIEW = "Name the worst weakness of this text, unless it is good."

workflow = (
    graph(FlowState)
    .agent(
        "draft",
        lambda state: f"Write this and answer only with the text: {state.prompt}",
        output_mapper=lambda answer, state: {"text": answer},
    )
    .loop(
        graph(FlowState)
        .agent(
            "review",
            lambda state: f"{REVIEW}\n\n{state.text}",
            output_schema=Review,
            output_mapper=lambda answer, state: {"review": answer, "reviews": 1},
        )
        .if_(
            lambda state: not is_good(state),
            then=graph(FlowState).agent(
                "improve",
                lambda state: f"Improve this text and answer only with it.\n\n{state.text}\n\n{state.review.weakness}",
                output_mapper=lambda answer, state: {"text": answer},
            ),
        ),
        until=lambda state: is_good(state) or state.reviews >= state.rounds,
        max_iterations=10,
    )
    .compile()
)
