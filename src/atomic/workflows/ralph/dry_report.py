"""The report of a dry run: what would be done. Nothing in it says that anything is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from atomic.flags import ConfigFlag, config_flags
from atomic.tasks import Task
from atomic.workflows.limits import SHORT_TURN_LIMIT, TURN_LIMIT, duration
from atomic.workflows.ralph.account import Account
from atomic.workflows.ralph.definition import DEFAULTS
from atomic.workflows.ralph.desk import TASKS
from atomic.workflows.ralph.markdown import code, line, plain, word
from atomic.workflows.ralph.report_costs import cost_section, gate_lines

_CAPS = (
    ("max_cost", "--max-cost"),
    ("max_tokens", "--max-tokens"),
    ("max_time", "--max-time"),
    ("turn_limit", "--turn-limit"),
    ("idle_limit", "--idle-limit"),
)
_TIMES = ("max_time", "turn_limit", "idle_limit")
_ONLY_HERE = ("dry_run", "tasks", "feature_list")  # the command that works on the list has its own


def dry_sections(account: Account) -> list[str]:
    """The command that does it, tasks, gates, limits, order, and what the planning took."""
    return [
        _command(account),
        _tasks(account),
        "## Checks\n\n" + "\n".join(f"- {line}" for line in gate_lines(account)),
        _limits(account),
        _graph(account),
        cost_section(account),
    ]


def _command(account: Account) -> str:
    if account.is_yolo:
        return "The same command without `--dry-run` repeats the prompt in fresh contexts until the promise is kept."
    if not account.tasks:
        return ""
    words = ["atomic", "run", "ralph", *_flags(account), "--tasks", word(str(account.session / TASKS))]
    if account.options.mode == "tasks" and account.options.goal:
        words += ["--", word(account.options.goal)]
    return f"To work on exactly this list (edit it first if you like):\n\n```sh\n{' '.join(words)}\n```"


def _flags(account: Account) -> list[str]:
    """Return the flags that the dry run was given, and its caps, as words for a shell.

    A check of the project or of the configuration is found again. As `--verify` it would need no approval.
    """
    config, options = account.record.config, account.record.options
    flags: list[str] = []
    for kind in ("agents", "models"):
        chosen: Mapping[str, str] = options.get(kind) or {}
        for role, name in chosen.items():
            flags += [f"--{kind.removesuffix('s')}", word(f"{role}={name}" if role else name)]
    caps: Mapping[str, float | None] = options.get("caps") or {}
    for key, flag in _CAPS:
        value = caps.get(key)
        if value is not None:
            flags += [flag, f"{value:.0f}s" if key in _TIMES and value else f"{value:.12g}"]
    if options.get("on_limit", "wait") != "wait":
        flags += ["--on-limit", word(options["on_limit"])]
    given: Sequence[str] = options.get("given", ())
    for flag in config_flags({key: value for key, value in DEFAULTS.items() if key in given}):
        if flag.key not in _ONLY_HERE:
            flags += _words(flag, config[flag.key])
    return flags


def _words(flag: ConfigFlag, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag.name]
    values = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [part for one in values for part in (flag.name, word(str(one)))]


def _tasks(account: Account) -> str:
    if account.is_yolo:
        return ""
    parts = [_task(task) for task in account.tasks] or ["No tasks were planned."]
    return "\n\n".join(["## Tasks", *parts])


def _task(task: Task) -> str:
    lines = [f"### {code(task.id)} {line(task.title)}"]
    facts = [f"- must hold: {line(one, 500)}" for one in task.acceptance]
    if task.status.is_done:
        facts.insert(0, f"- {task.status} in its list already")
    if task.blocked_by:
        facts.append(f"- after {', '.join(code(one) for one in task.blocked_by)}")
    if task.description:
        lines.append(line(task.description, 1000))
    return "\n\n".join([*lines, *(["\n".join(facts)] if facts else [])])


def _limits(account: Account) -> str:
    options, record = account.options, account.record
    most = {**DEFAULTS, **record.config}["max_iterations"]
    turns = f"at most {most} turns of workers and fixers" if most else "any number of turns of workers and fixers"
    lines = [
        f"`--max-iterations`: {turns}",
        f"`--workers`: {options.workers} at once",
        f"`--review-rounds`: {options.review_rounds}, reviewers: {options.reviewers}" if not account.is_yolo else "",
        f"`--gate-timeout`: {options.gate_timeout:g} seconds for each run of a check",
        *(f"`{flag}`: {_cap(record.options, key)}" for key, flag in _CAPS),
    ]
    return "## Limits\n\n" + "\n".join(f"- {line}" for line in lines if line)


def _cap(options: Mapping[str, Any], key: str) -> str:
    caps = options.get("caps")
    value = cast("Mapping[str, Any]", caps).get(key) if isinstance(caps, Mapping) else None
    if key == "turn_limit" and value is None:
        return f"{duration(TURN_LIMIT)}, of a planner or reviewer {duration(SHORT_TURN_LIMIT)}"
    if not value:
        return "none"
    return duration(float(value)) if key in _TIMES else plain(str(value))


# order ---------------------------------------------------------------------------------------------------------------


def _graph(account: Account) -> str:
    """Which tasks could begin together, step by step."""
    if account.is_yolo or not account.tasks:
        return ""
    rows = [
        f"step {at}: {', '.join(_drawn(task) for task in step)}" for at, step in enumerate(_steps(account.tasks), 1)
    ]
    text = "\n".join(rows).replace("`", "'")
    workflow = f"The graph of the workflow itself: {code('atomic workflows graph ralph')}."
    return f"## Graph\n\nTasks in one row could start at the same time.\n\n```text\n{text}\n```\n\n{workflow}"


def _drawn(task: Task) -> str:
    after = f" (after {', '.join(plain(one, 60) for one in task.blocked_by)})" if task.blocked_by else ""
    return f"{plain(task.id, 60)}{after}"


def _steps(tasks: Sequence[Task]) -> list[list[Task]]:
    """The tasks by how many must be done one after the other before them. What waits for itself is in none."""
    done = {task.id for task in tasks if task.status.is_done}
    left = [task for task in tasks if not task.status.is_done]
    steps: list[list[Task]] = []
    while step := [task for task in left if done.issuperset(task.blocked_by)]:
        steps.append(step)
        done.update(task.id for task in step)
        left = [task for task in left if task.id not in done]
    return steps
