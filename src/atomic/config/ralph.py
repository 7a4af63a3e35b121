"""The names and flags of Ralph: the one table for the workflow, its help, its hint and a shell's Tab.

It is here, and not with the workflow, because the settings know it and a press of Tab must not import workflows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAME = "ralph"
ALIASES = ("loop",)

DEFAULTS: Mapping[str, Any] = {
    "tasks": "",
    "feature_list": "",
    "yolo": False,
    "max_iterations": 100,
    "workers": 1,
    "isolate": "none",
    "verify": [],
    "gate_timeout": "30m",
    "red_checks": "",
    "review_rounds": 3,
    "reviewers": 1,
    "pr": False,
    "dry_run": False,
}

# What a resume may change. The rest says what the run is, and is read once, when it starts.
ON_RESUME = ("max_iterations", "red_checks", "review_rounds")

# What each flag does.
DESCRIPTIONS: Mapping[str, str] = {
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
}
