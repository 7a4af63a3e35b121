"""The names and flags of Ralph, for the workflow, its help, its hint and shell
completion.

They are here and not in `ralph`, because settings need them, and completion must not
import workflows.
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
    "workers": 4,
    "isolate": "auto",
    "include_uncommitted": False,
    "accept": False,
    "verify": [],
    "gate_timeout": "30m",
    "red_checks": "",
    "review_rounds": 3,
    "reviewers": 1,
    "pr": False,
    "dry_run": False,
}

# The flags that a resume may change. Others are read once, when the run starts.
ON_RESUME = ("max_iterations", "red_checks", "review_rounds")

DESCRIPTIONS: Mapping[str, str] = {
    "tasks": "FILE: work on the tasks in this file; it is copied, not changed",
    "feature_list": "FILE: work on the features in this file; it is copied, not changed",
    "yolo": "no plan: repeat the prompt in fresh contexts until the agent keeps its promise",
    "max_iterations": "turns of workers and fixers, then pause; 0: no limit",
    "workers": "number of tasks at once; 1 without isolation, unless given",
    "isolate": "where workers work: auto, overlay, clone or worktree (a copy for each), none (your checkout)",
    "include_uncommitted": "begin with your uncommitted files, as the first commit of the run's branch",
    "accept": "at the end merge the run's branch into yours, if that is a fast-forward",
    "verify": "a check: a command that must pass after each task; repeatable",
    "gate_timeout": "how long one check may take",
    "red_checks": "ignore or goal: what to do with a check that is red before the run; goal is the default of --yolo",
    "review_rounds": "at most this many reviews; 0: no review",
    "reviewers": "number of reviewers; all must approve",
    "pr": "at the end push, and open a pull request with gh",
    "dry_run": "plan only: show tasks, graph, checks and limits",
}
