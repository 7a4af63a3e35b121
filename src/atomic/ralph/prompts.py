"""The prompts of each turn: the data that a role needs.

How a role works is in its agent file (`entities/builtin/agents/`, or the user's).
A prompt adds the
facts of the run, and the rules that hold for every agent file. Its first line names the
role and the task for logs, recordings and replay. Text from files, checks and agents is
fenced and labelled, so that no agent takes it for an instruction.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from atomic.config import git_folder
from atomic.ralph.evidence import CheckResult, Evidence
from atomic.ralph.file_names import named
from atomic.ralph.review import ANSWER_FORMAT, Finding
from atomic.tasks import Task

PROMISE = "<promise>COMPLETE</promise>"
RULE_FILES = ("AGENTS.md", "CLAUDE.md", "CONTRIBUTING.md", ".github/copilot-instructions.md")
MAX_QUOTE = 6_000  # characters of a check's output, or of an agent's message
MAX_PATCH = 60_000
MAX_TASKS = 40_000  # characters of all tasks together


class PromptContext(msgspec.Struct, frozen=True):
    """Facts about the project that all roles need."""

    cwd: str
    notes: str  # the file for notes from one worker to the next
    is_git: bool
    checks: tuple[str, ...] = ()
    red_before: tuple[str, ...] = ()  # checks that failed before the run and are ignored
    wanted: tuple[str, ...] = ()  # checks that have not passed yet and must pass at the end
    shared: bool = False  # several workers at once in one checkout
    users_files: tuple[str, ...] = ()  # uncommitted work of the user, which agents must not touch
    isolated: bool = False  # the agent has its own copy of the project


def head(role: str, task: str | None, attempt: int) -> str:
    """Return the first line of a prompt.

    A task's id becomes one word, so that the line can be parsed.
    """
    name = ""
    if task is not None:
        name = " task=" + re.sub(r"[\s\[\]]", "-", task)
    return f"[atomic role={role}{name} attempt={attempt}]"


def quoted(text: str, *, most: int = MAX_QUOTE, end: bool = True) -> str:
    """Return text of others between fences that it cannot close.

    Of a long text keep the end, where errors are, or with `end=False` the start.
    """
    kept = text
    note = ""
    if len(text) > most:
        kept = text[-most:] if end else text[:most]
        note = f"(the {'last' if end else 'first'} {most:,} characters of {len(text):,})\n"
    fence = "`" * max(3, 1 + max((len(ticks) for ticks in re.findall("`+", kept)), default=0))
    return f"{note}{fence}text\n{kept.rstrip()}\n{fence}"


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def _list(title: str, lines: Sequence[str]) -> str:
    return f"{title}:\n" + "\n".join(f"- {line}" for line in lines) if lines else ""


def planner_prompt(goal: str, origin: str, context: PromptContext, *, attempt: int, problem: str = "") -> str:
    """Ask for the tasks of a goal."""
    check = ""
    if not context.checks:
        check = (
            "In `check`, next to `tasks`, name the command that must pass when all tasks are done (such as "
            "`cargo test`). One task must make it work."
        )
    return _paragraphs(
        head("planner", None, attempt),
        "# Goal",
        f"It is the text of `{origin}`." if origin else "",
        goal,
        "# What to do",
        "Read the project and split the goal into tasks that workers can do one by one, each with its tests. "
        "Change nothing. You cannot ask questions.",
        _checks(context, "After each task a program runs"),
        check,
        _rules(context),
        f"Your last plan could not be used: {problem}\nFix that and submit the whole plan." if problem else "",
        "Submit the plan with the tool `submit_plan` if you have it. Otherwise answer only with JSON: "
        '`{"tasks": […]}`.',
    )


def worker_prompt(
    task: Task,
    context: PromptContext,
    *,
    attempt: int,
    builds_on: Sequence[str] = (),
    trouble: str = "",
    said: str = "",
    cut_off: bool = False,
    aim: str = "",
) -> str:
    """Ask for one task, or for the fix of one finding."""
    kind = "Task"
    text = task.description
    role = role_of(task)
    if role == "fixer" and is_check_repair(task):
        kind = "Repair"
        text = f"The project's checks are red. All other work waits until they pass.\n\n{task.description}"
    elif role == "fixer" and task.metadata.get("repairs") == "merge":
        kind = "Merge"
    elif role == "fixer":
        kind = "Finding"
        text = _finding(task)
    return _paragraphs(
        head(role, task.id, attempt),
        f"# {kind} {task.id}: {task.title}",
        text,
        aim,
        _list("Acceptance", task.acceptance),
        _list("Finished tasks that this one builds on", builds_on),
        _details(task),
        _last_attempt(context, attempt, trouble, said, cut_off),
        _checks(context, "When you have ended your turn, a program runs"),
        _work_rules(context),
        _rules(context),
    )


def role_of(task: Task) -> str:
    """Return the role that does the task."""
    return "fixer" if task.metadata.get("role") == "fixer" else "worker"


def is_check_repair(task: Task) -> bool:
    """Return whether the task exists because checks were red, and not because of a
    finding.
    """
    return task.metadata.get("repairs") == "checks"


def _finding(task: Task) -> str:
    finding: Mapping[str, Any] = task.metadata.get("finding") or {}
    priority = finding.get("priority")
    facts = "Priority: not given, so it blocks" if priority is None else f"Priority: P{priority}"
    if location := finding.get("location"):
        facts += f"\nLocation: {location}"
    return f"{facts}\n\nThe reviewer's text:\n\n{quoted(task.description, end=False)}"


def aim_of(goal: str, tasks: Sequence[Task]) -> str:
    """Return the goal and the tasks with their acceptance, which a fix must not break."""
    texts: list[str] = []
    if goal:
        texts.append(f"The run's goal:\n\n{quoted(goal, most=4_000, end=False)}")
    if listed := [_summary(task, len(tasks)) for task in tasks if role_of(task) != "fixer"]:
        texts.append("Its tasks, which must still hold after your fix:\n" + "\n".join(listed))
    return "\n\n".join(texts)


def _details(task: Task) -> str:
    """Return other fields of a task in its list, such as steps or a category."""
    more = {key: value for key, value in task.metadata.items() if key not in ("role", "finding")}
    if not more or role_of(task) == "fixer":
        return ""
    text = msgspec.json.format(msgspec.json.encode(more), indent=2).decode()
    return f"Also in the task list:\n\n{quoted(text, end=False)}"


def _last_attempt(context: PromptContext, attempt: int, trouble: str, said: str, cut_off: bool) -> str:
    texts: list[str] = []
    if trouble:
        texts.append(f"# Attempt {attempt - 1} failed\n\n{trouble}")
    if said:
        texts.append(f"The last message of that attempt, unproven:\n\n{quoted(said)}")
    if cut_off:
        look = "`git status` and `git log` show" if context.is_git else "the files show"
        texts.append(f"An earlier turn on this was interrupted: {look} its changes. Continue from there.")
    return "\n\n".join(texts)


def _checks(context: PromptContext, when: str) -> str:
    if not context.checks:
        return "No command checks this project: tests that you write and run are the only proof."
    lines: list[str] = []
    for check in context.checks:
        remark = ""
        if check in context.red_before:
            remark = " (failed before this run, so it does not block; make it pass only if the task requires it)"
        elif check in context.wanted:
            remark = " (has not passed yet; it must pass when all tasks are done)"
        lines.append(f"- `{check}`{remark}")
    listed = "\n".join(lines)
    return f"{when}, in `{context.cwd}`:\n{listed}\nOnly its exit code counts, not your description of it."


def _work_rules(context: PromptContext) -> str:
    commit = "This folder is not in a git repository: leave the files in their final state."
    if context.isolated:
        commit = (
            "You work in your own copy of the project: others work on other tasks in theirs. Commit your work on the "
            "current branch, and only the files of this task. Do not switch branches. Other branches, tags and "
            "stashes do not leave this copy, and nothing that git ignores does: what is not committed by you is "
            "committed for you, and then the checks run on a new checkout of that commit."
        )
    elif context.is_git:
        commit = (
            "Commit your work on the current branch, in one commit, and only the files of this task, by name: "
            "`git add -- FILES && git commit --only -m MESSAGE -- FILES`. Never use `git add -A`, `git add .` or "
            "`git commit -a`. Add commits; do not amend, rebase, reset or switch branches. Do not touch other "
            "branches, tags or stashes."
        )
        if context.users_files:
            commit += (
                f"\nThese files are uncommitted work of the user: {named(context.users_files)}. Do not change, delete, "
                "stage, commit or stash them."
            )
    if context.shared:
        commit += " Others work in the same checkout at the same time: do not touch their files and commits."
    return (
        f"{commit}\n"
        f"Add notes for the next worker to `{context.notes}` (a few lines; read it first if it exists).\n"
        "You cannot ask questions. Do not weaken tests, checks or CI: a reviewer sees every such change."
    )


def _rules(context: PromptContext) -> str:
    """Name the rule files of the folder and of the repository around it."""
    cwd = Path(context.cwd)
    folders = [cwd, *cwd.parents]
    root = next((at for at, folder in enumerate(folders) if git_folder(folder) is not None), 0)
    paths = [folder / name for folder in folders[root::-1] for name in RULE_FILES]
    found = [f"`{os.path.relpath(path, cwd)}`" for path in paths if path.is_file()]
    return f"The project's rules are in {', '.join(found)}: they come first." if found else ""


def check_output(results: Sequence[CheckResult]) -> str:
    """Return how checks failed, for the agent that must fix it."""
    parts: list[str] = []
    for check in results:
        how = "took too long and was ended" if check.timed_out else f"ended with exit code {check.exit_code}"
        parts.append(f"`{check.command}` {how}. Its output:\n\n{quoted(check.output_tail)}")
    return "\n\n".join(parts)


class Change(msgspec.Struct, frozen=True):
    """The change that a reviewer judges."""

    patch: str
    cut: bool
    patch_file: str
    base: str | None  # the commit that was checked out when the run began


def reviewer_prompt(
    goal: str,
    tasks: Sequence[Task],
    evidence: Mapping[str, Evidence],
    change: Change,
    context: PromptContext,
    *,
    attempt: int,
    before: Sequence[Finding] = (),
    weakened: Sequence[str] = (),
    problem: str = "",
) -> str:
    """Ask for a review of the change. The prompt has no claims of workers.

    `weakened`: how the checks prove less than before.
    """
    task_lines: list[str] = []
    for task in tasks:
        task_lines.append(_summary(task, len(tasks)))
        if task.id in evidence:
            task_lines += [f"  - `{check.command}`: {_result(check)}" for check in evidence[task.id].checks]
    findings = [f"{one.title} ({one.location})" if one.location else one.title for one in before]
    return _paragraphs(
        head("reviewer", None, attempt),
        "# Review the change of this run",
        f"Goal:\n\n{quoted(goal, most=20_000, end=False)}" if goal else "",
        "Tasks:\n" + "\n".join(task_lines),
        _list("**The checks may prove less than before.** Look at this first", weakened),
        _changed_tests(evidence),
        _dropped_lines(evidence),
        _list("Findings of the last round (verify for each that it is fixed)", findings),
        _patch(change, context),
        _rules(context),
        f"Your last answer could not be used: {problem}\nGive the whole review again." if problem else "",
        ANSWER_FORMAT,
    )


def _summary(task: Task, count: int) -> str:
    """Return a task as one of `count` tasks: the more there are, the shorter is each
    description.
    """
    lines = [f"- {task.id}: {task.title}"]
    words = " ".join(task.description.split())
    most = max(200, min(2_000, MAX_TASKS // count))
    if words not in ("", task.title):
        lines.append(f"  {words}" if len(words) <= most else f"  {words[:most]} …")
    lines += [f"  - must hold: {line}" for line in task.acceptance]
    return "\n".join(lines)


def _result(check: CheckResult) -> str:
    if check.timed_out:
        return "took too long"
    text = "passed"
    if check.tolerated and check.tests is not None:
        text = (
            f"red (exit code {check.exit_code}), as before the run: {len(check.tests.failed)} tests fail that failed"
            " then, and no other. Nothing else of its output was compared: look whether anything else in it fails"
        )
    elif check.exit_code != 0:
        before = "and had not passed yet" if check.baseline_exit_code is None else "as before the run"
        text = f"red (exit code {check.exit_code}), {before}"
    return f"{text}, only the second time" if check.flaky else text


def _changed_tests(evidence: Mapping[str, Evidence]) -> str:
    found = [f"`{path}` (task {task})" for task, one in evidence.items() for path in one.protected_files]
    return _list(
        "**Tests, checks or CI files were changed.** The checks above may be green only because of that. "
        "Look at each of these first, and report it if a check was weakened",
        found,
    )


def _dropped_lines(evidence: Mapping[str, Evidence]) -> str:
    found = [
        f"`{path}` (task {task}):\n\n{quoted(chr(10).join(lines), most=2_000, end=False)}"
        for task, one in evidence.items()
        for path, lines in one.dropped.items()
    ]
    return _list(
        "**Merging a task took lines away that another task had added.** Find out for each file whether work was lost,"
        " and report it",
        found,
    )


def _patch(change: Change, context: PromptContext) -> str:
    if not change.patch:
        return "The run has changed no file."
    base = f"The run began at commit `{change.base}`. " if change.base else ""
    cut = f" It is cut here; the whole is in `{change.patch_file}`." if change.cut else ""
    patch = quoted(change.patch, most=MAX_PATCH, end=False)
    return f"{base}These are all changes in `{context.cwd}` since then, committed or not.{cut}\n\n{patch}"


def yolo_prompt(
    goal: str, context: PromptContext, *, attempt: int, trouble: str = "", said: str = "", cut_off: bool = False
) -> str:
    """Ask for the goal, each time in a fresh context, until the promise is kept."""
    return _paragraphs(
        head("worker", None, attempt),
        goal,
        _last_attempt(context, attempt, trouble, said, cut_off),
        _checks(context, "When you promise that all is done, a program runs"),
        _work_rules(context),
        _rules(context),
        "You may get this prompt again, without any memory of this turn: only files, commits and notes remain. "
        "Do the next useful piece of the work completely.",
        f"Only when everything above is done and checked, end your answer with exactly this line:\n{PROMISE}\n"
        "If anything is left, do not write it; list the rest.",
    )
