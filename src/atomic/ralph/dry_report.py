"""The report of a dry run: the plan, and the command that runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from atomic.base.flags import config_flags
from atomic.base.text import duration
from atomic.ralph.definition import DEFAULTS
from atomic.ralph.markdown import bullets, code, codes, line, paragraphs, plain, shell, word
from atomic.ralph.report_data import ReportData
from atomic.ralph.report_sections import check_lines, cost_section
from atomic.ralph.run_folder import TASKS
from atomic.runs.limits import SHORT_TURN_LIMIT, TURN_LIMIT
from atomic.tasks import Task

_CAPS = {
    "max_cost": "--max-cost",
    "max_tokens": "--max-tokens",
    "max_time": "--max-time",
    "turn_limit": "--turn-limit",
    "idle_limit": "--idle-limit",
}
_TIMES = ("max_time", "turn_limit", "idle_limit")
_NOT_REPEATED = ("dry_run", "tasks", "feature_list")  # flags that the command for the real run does not repeat


def dry_sections(data: ReportData) -> list[str]:
    """Return the command for the real run, the tasks, checks, limits and order, and the
    cost of the plan.
    """
    checks = paragraphs("## Checks", bullets(check_lines(data)))
    if data.is_yolo:
        same = "The same command without `--dry-run` repeats the prompt in fresh contexts until the promise is kept."
        return [same, checks, _limits(data), cost_section(data)]
    if not data.tasks:
        return ["## Tasks\n\nNo tasks were planned.", checks, _limits(data), cost_section(data)]
    tasks = paragraphs("## Tasks", *(_task(task) for task in data.tasks))
    return [_command(data), tasks, checks, _limits(data), _order(data.tasks), cost_section(data)]


def _command(data: ReportData) -> str:
    words = ["atomic", "run", "ralph", *_flags(data), "--tasks", word(str(data.session / TASKS))]
    if data.options.mode == "tasks" and data.options.goal:
        words += ["--", word(data.options.goal)]
    return paragraphs("To work on exactly this list (edit it first if you like):", shell(" ".join(words)))


def _flags(data: ReportData) -> list[str]:
    """Return the flags and caps of the dry run, as words for a shell.

    Checks of the project and of the configuration are left out: the real run finds them
    again, and as `--verify` they would need no approval.
    """
    options = data.record.options
    flags: list[str] = []
    for kind in ("agents", "models"):
        chosen: Mapping[str, str] = options.get(kind) or {}
        for role, name in chosen.items():
            flags += [f"--{kind.removesuffix('s')}", word(f"{role}={name}" if role else name)]
    caps: Mapping[str, float | None] = options.get("caps") or {}
    for key, flag in _CAPS.items():
        value = caps.get(key)
        if value is not None:
            flags += [flag, f"{value:.0f}s" if key in _TIMES and value else f"{value:.12g}"]
    if options.get("on_limit", "wait") != "wait":
        flags += ["--on-limit", word(options["on_limit"])]
    given: Sequence[str] = options.get("given", ())
    for flag in config_flags({key: value for key, value in DEFAULTS.items() if key in given}):
        if flag.key in _NOT_REPEATED:
            continue
        value = data.record.config[flag.key]
        if isinstance(value, bool):
            flags.append(flag.name)
            continue
        for one in cast("list[Any]", value) if isinstance(value, list) else [value]:
            flags += [flag.name, word(str(one))]
    return flags


def _task(task: Task) -> str:
    facts = [f"{task.status} in its list already" if task.status.is_done else ""]
    facts += [f"must hold: {line(one, 500)}" for one in task.acceptance]
    if task.blocked_by:
        facts.append(f"after {codes(task.blocked_by)}")
    return paragraphs(f"### {code(task.id)} {line(task.title)}", line(task.description, 1000), bullets(facts))


def _limits(data: ReportData) -> str:
    options = data.options
    most = {**DEFAULTS, **data.record.config}["max_iterations"]
    turns = f"at most {most}" if most else "any number of"
    lines = [
        f"`--max-iterations`: {turns} turns of workers and fixers",
        f"`--workers`: {options.workers} at once",
        f"`--isolate`: {options.isolate}",
        "" if data.is_yolo else f"`--review-rounds`: {options.review_rounds}, reviewers: {options.reviewers}",
        f"`--gate-timeout`: {options.gate_timeout:g} seconds for each run of a check",
        *(f"`{flag}`: {_cap(data.record.options, key)}" for key, flag in _CAPS.items()),
    ]
    return paragraphs("## Limits", bullets(lines))


def _cap(options: Mapping[str, Any], key: str) -> str:
    caps = options.get("caps")
    value = cast("Mapping[str, Any]", caps).get(key) if isinstance(caps, Mapping) else None
    if key == "turn_limit" and value is None:
        return f"{duration(TURN_LIMIT)}, of a planner or reviewer {duration(SHORT_TURN_LIMIT)}"
    if not value:
        return "none"
    return duration(float(value)) if key in _TIMES else plain(str(value))


def _order(tasks: Sequence[Task]) -> str:
    """Return which tasks could start together, step by step."""
    rows: list[str] = []
    for number, step in enumerate(_steps(tasks), 1):
        names: list[str] = []
        for task in step:
            after = f" (after {', '.join(plain(one, 60) for one in task.blocked_by)})" if task.blocked_by else ""
            names.append(f"{plain(task.id, 60)}{after}")
        rows.append(f"step {number}: {', '.join(names)}".replace("`", "'"))
    return paragraphs(
        "## Graph",
        "Tasks in one row could start at the same time.",
        "\n".join(["```text", *rows, "```"]),
        f"The graph of the workflow itself: {code('atomic workflows graph ralph')}.",
    )


def _steps(tasks: Sequence[Task]) -> list[list[Task]]:
    """Group the tasks by how many others must be done before them.

    A task that waits for itself is in no group.
    """
    done = {task.id for task in tasks if task.status.is_done}
    left = [task for task in tasks if not task.status.is_done]
    steps: list[list[Task]] = []
    while step := [task for task in left if done.issuperset(task.blocked_by)]:
        steps.append(step)
        done.update(task.id for task in step)
        left = [task for task in left if task.id not in done]
    return steps
