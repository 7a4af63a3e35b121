"""The definition of Ralph, known before it is loaded.

Its name and flags are in `atomic.config.ralph_flags`.
"""

from __future__ import annotations

import os.path

from atomic.config.ralph_flags import ALIASES, DEFAULTS, DESCRIPTIONS, NAME, ON_RESUME
from atomic.workflows.definition import Demo, LoadedWorkflow, WorkflowDefinition, WorkflowSource


def load_ralph(definition: WorkflowDefinition) -> LoadedWorkflow:
    """Import Ralph; a list of workflows or a completion does not need it."""
    from atomic.ralph.workflow import ralph

    return ralph(definition)


DEMO = Demo(
    folder=os.path.join(os.path.dirname(__file__), "demo"),
    prompt="Conway's Game of Life for the terminal: rules on a torus, well-known patterns, half-block pictures, and a"
    " command `python3 -m life`. Standard library only, each part with unittest tests.",
    config={"verify": ["{python} -m unittest -q"]},
    story="Ralph plans a Game of Life. Three workers build its parts side by side, each in its own copy of the"
    " project. The tests judge each task: one fails and is tried again. Two tasks change the same lines, and the"
    " conflict is solved. A reviewer looks at the whole, what it finds is fixed, and the work is accepted. The files,"
    " the commits and the test runs are real; the agents are played from a recording, with the tokens and prices that"
    " it names, and cost nothing.",
    tests="{python} -m unittest -q",
    look="{python} -m life gun --steps 90 --still",
    play="{python} -m life gun",
)

RALPH = WorkflowDefinition(
    name=NAME,
    description="Plan, implement, verify, review and fix until the work is done and proven",
    aliases=ALIASES,
    version="1.0.0",
    argument_hint="[prompt or path of a spec]",
    default_config=DEFAULTS,
    source=WorkflowSource.BUILTIN,
    loader=load_ralph,
    demo=DEMO,
    config_descriptions=DESCRIPTIONS,
    resume_config=ON_RESUME,
    roles=("planner", "worker", "reviewer", "fixer"),
    node_descriptions={
        "prepare": "look at the project and its checks",
        "plan": "split the goal into tasks",
        "work": "work on the task",
        "gate": "run the checks on the worker's files",
        "review": "review the change",
        "turn": "work on the prompt",
        "look": "check whether the promise was kept",
        "publish": "open the pull request",
        "accept": "merge the run's branch into yours",
    },
)
