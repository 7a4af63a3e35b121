"""What is known of Ralph before it is loaded: its name, its flags."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from typing import Any

from atomic.config.keys import RALPH_NUMBERS
from atomic.workflows.definition import Demo, LoadedWorkflow, WorkflowDefinition, WorkflowSource

DEFAULTS: Mapping[str, Any] = {
    "tasks": "",
    "feature_list": "",
    "yolo": False,
    "max_iterations": RALPH_NUMBERS["max_iterations"],
    "workers": RALPH_NUMBERS["workers"],
    "isolate": "none",
    "verify": [],
    "gate_timeout": "30m",
    "red_checks": "",
    "review_rounds": RALPH_NUMBERS["review_rounds"],
    "reviewers": RALPH_NUMBERS["reviewers"],
    "pr": False,
    "dry_run": False,
}


def load_ralph(definition: WorkflowDefinition) -> LoadedWorkflow:
    """Import what a run needs, which a list or a completion does not."""
    from atomic.workflows.ralph.workflow import ralph

    return ralph(definition)


DEMO = Demo(
    folder=os.path.join(os.path.dirname(__file__), "demo"),
    prompt="Conway's Game of Life for the terminal: rules on a torus, well-known patterns, half-block pictures, and a"
    " command `python3 -m life`. Standard library only, each part with unittest tests.",
    config={"verify": ["{python} -m unittest -q"]},
    story="Ralph plans a Game of Life, workers build it task by task, the tests judge each task, a reviewer looks at"
    " the whole, and what it finds is mended. The files, the commits and the test runs are real; the agents are played"
    " from a recording, with the tokens and prices that it names, and cost nothing.",
    tests="{python} -m unittest -q",
    look="{python} -m life gun --steps 90 --still",
    play="{python} -m life gun",
)

RALPH = WorkflowDefinition(
    name="ralph",
    description="Plan, implement, verify, review and fix until the work is done and proven",
    version="1.0.0",
    argument_hint="[prompt or path of a spec]",
    default_config=DEFAULTS,
    source=WorkflowSource.BUILTIN,
    loader=load_ralph,
    demo=DEMO,
    config_descriptions={
        "tasks": "work on the tasks of that file; it is copied and not touched",
        "feature_list": "work on the features of that file; it is copied and not touched",
        "yolo": "no plan: repeat the prompt in fresh contexts until the agent keeps its promise",
        "max_iterations": "turns of workers and fixers, then pause; 0: no limit",
        "workers": "so many tasks at once, all in one checkout",
        "isolate": "where workers work; there is only none yet",
        "verify": "a command that must pass after each task; as often as you like",
        "gate_timeout": "how long such a command may take",
        "red_checks": "ignore or goal: what a check means that is red before the run; goal is the default of --yolo",
        "review_rounds": "reviews at most; 0: no review",
        "reviewers": "so many at once, and all must approve",
        "pr": "at the end push, and open a pull request with gh",
        "dry_run": "plan only: show tasks, graph, checks and limits",
    },
    roles=("planner", "worker", "reviewer", "fixer"),
    node_descriptions={
        "prepare": "look at the project and its checks",
        "plan": "cut the goal into tasks",
        "work": "work on the task",
        "gate": "run the checks on what the worker left",
        "review": "review the change",
        "turn": "work on the prompt",
        "look": "look whether the promise was kept",
        "publish": "open the pull request",
    },
)
