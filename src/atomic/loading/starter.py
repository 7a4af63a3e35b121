"""The file that `atomic workflows new` writes, from the line of dashes on."""

# ------------------------------------------------------------------------------------------------------------------
# A workflow that writes a draft and reviews it until it is good. Change it as you like and run it again:
#
#   atomic run my-flow "a limerick about version control"
#   atomic workflows check             shows all problems of it
#   atomic workflows graph my-flow     draws it
#   atomic trust                       shows what changed and lets it run again

from __future__ import annotations

from typing import Annotated

from atomic.workflows import State, WorkflowStateParams, graph, reducers

# These are read without running the file, so write them as plain values.
description = "Write a draft, then review and improve it"
argument_hint = "WHAT TO WRITE"
version = "1.0.0"
default_config = {"rounds": 2}  # [workflows.my-flow] in ~/.atomic/config.toml changes it
node_descriptions = {"draft": "Writing a draft", "review": "Reviewing it", "improve": "Improving it"}


class FlowState(State):
    """The data that nodes share.

    It is recorded after every step, so a run can be resumed.
    """

    prompt: str = ""
    rounds: int = 2
    text: str = ""
    review: str = ""
    reviews: Annotated[int, reducers.sum] = 0  # nodes add to it


def create_state(params: WorkflowStateParams) -> FlowState:
    """Return the first state, from the prompt and the configuration."""
    return FlowState(prompt=params.prompt, rounds=params.config["rounds"])


def is_good(state: FlowState) -> bool:
    return "LGTM" in state.review or state.reviews >= state.rounds


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
            lambda state: f"Name the worst weakness of this text, or answer LGTM if it is good:\n\n{state.text}",
            output_mapper=lambda answer, state: {"review": answer, "reviews": 1},
        )
        .if_(
            lambda state: "LGTM" not in state.review,
            then=graph(FlowState).agent(
                "improve",
                lambda state: f"Improve this text and answer only with it.\n\n{state.text}\n\n{state.review}",
                output_mapper=lambda answer, state: {"text": answer},
            ),
        ),
        until=is_good,
        max_iterations=10,
    )
    .compile()
)
