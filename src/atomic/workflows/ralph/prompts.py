"""What each role is told: the context that it needs, and no more.

The first line says who is meant; logs, recordings and replay read it. What comes from files, gates or agents stands
between marks and is called what it is, so that nobody takes it for an order.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from atomic.config import git_folder
from atomic.tasks import Task
from atomic.workflows.ralph.evidence import Evidence, GateResult
from atomic.workflows.ralph.review import Finding
from atomic.workflows.ralph.users_files import named

PROMISE = "<promise>COMPLETE</promise>"
RULES = ("AGENTS.md", "CLAUDE.md", "CONTRIBUTING.md", ".github/copilot-instructions.md")
MOST_TROUBLE = 6_000  # characters of a gate's output, or of what a reviewer said, that are passed on
MOST_PATCH = 60_000
_RED_BEFORE = (
    "was red before this run, so it does not stop anybody; make it pass only if that is what you are asked for"
)
MOST_TASKS = 40_000  # characters of what is told of all tasks together


class Place(msgspec.Struct, frozen=True):
    """Where the work is done, as far as all roles must know."""

    cwd: str
    notes: str  # the file for notes of one worker to the next
    is_git: bool
    gates: tuple[str, ...] = ()
    red_before: tuple[str, ...] = ()  # checks that failed before the run and are ignored
    wanted: tuple[str, ...] = ()  # checks that have not passed yet and must pass at the end
    shared: bool = False  # several workers at once in one checkout
    users_files: tuple[str, ...] = ()  # uncommitted work of the user, which nobody may touch


def head(role: str, task: str | None, attempt: int) -> str:
    """The first line of every prompt."""
    named = "" if task is None else f" task={_word(task)}"
    return f"[atomic role={role}{named} attempt={attempt}]"


def _word(text: str) -> str:
    """An id as one word, so that the line can be read again."""
    return "".join("-" if letter.isspace() or letter in "[]" else letter for letter in text)


def quoted(text: str, *, most: int = MOST_TROUBLE, end: bool = True) -> str:
    """Text of others between fences that it cannot close; of a long one the end, where the errors are, or the start."""
    cut = len(text) > most
    kept = text[-most:] if cut and end else text[:most]
    longest = max((len(run) for run in _ticks(kept)), default=0)
    fence = "`" * max(3, longest + 1)
    note = f"(the {'last' if end else 'first'} {most:,} characters of {len(text):,})\n" if cut else ""
    return f"{note}{fence}text\n{kept.rstrip()}\n{fence}"


def _ticks(text: str) -> list[str]:
    runs: list[str] = []
    run = ""
    for letter in text:
        if letter == "`":
            run += letter
        elif run:
            runs.append(run)
            run = ""
    return [*runs, run]


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


# plan --------------------------------------------------------------------------------------------------------------


def planner_prompt(goal: str, origin: str, place: Place, *, attempt: int, problem: str = "") -> str:
    """Cut the goal into tasks."""
    source = f"It is the text of `{origin}`." if origin else ""
    again = f"Your last plan could not be used: {problem}\nRepair that and hand in the whole plan." if problem else ""
    return _joined(
        head("planner", None, attempt),
        f"# Goal\n\n{source}".rstrip(),
        goal,
        "# What to do",
        "Read the project and cut the goal into tasks that workers can do one by one, each with tests of its own. "
        "Change nothing. Nobody answers questions.",
        _checks(place, "After each task a program runs"),
        ""
        if place.gates
        else "Name in `check`, beside `tasks`, the command that must pass when all is done (such as "
        "`cargo test`); a task must make it work.",
        _rules(place),
        again,
        'Hand the plan in with the tool `submit_plan` if you have it; else answer with JSON alone: `{"tasks": […]}`.',
    )


# work --------------------------------------------------------------------------------------------------------------


def worker_prompt(
    task: Task,
    place: Place,
    *,
    attempt: int,
    builds_on: Sequence[str] = (),
    trouble: str = "",
    said: str = "",
    cut_off: bool = False,
    aim: str = "",
) -> str:
    """Do one task, or repair one finding."""
    role = role_of(task)
    return _joined(
        head(role, task.id, attempt),
        f"# {_kind(task)} {task.id}: {task.title}",
        _finding(task) if role == "fixer" else task.description,
        aim,
        _list("Acceptance", task.acceptance),
        _list("Finished tasks that this one builds on", builds_on),
        _details(task),
        _trouble(attempt, trouble),
        _said_before(said),
        _cut_off(place) if cut_off else "",
        _checks(place, "When you have ended your turn, a program runs"),
        _how(place),
        _rules(place),
    )


def role_of(task: Task) -> str:
    return "fixer" if task.metadata.get("role") == "fixer" else "worker"


def _kind(task: Task) -> str:
    if role_of(task) != "fixer":
        return "Task"
    return "Repair" if "repairs" in task.metadata else "Finding"


def _finding(task: Task) -> str:
    if "repairs" in task.metadata:
        return f"The project's checks are red, and nobody else works until they pass.\n\n{task.description}"
    finding: Mapping[str, Any] = task.metadata.get("finding") or {}
    priority, location = finding.get("priority"), finding.get("location")
    where = f"Location: {location}" if location else ""
    urgent = "Priority: not given, so it blocks" if priority is None else f"Priority: P{priority}"
    return _joined(
        f"{urgent}\n{where}".rstrip(), "What the reviewer says:", quoted(task.description, end=False)
    ).rstrip()


def aim_of(goal: str, tasks: Sequence[Task]) -> str:
    """What a repair must not break: the goal, and the tasks with what must hold."""
    asked = f"The run's goal:\n\n{quoted(goal, most=4_000, end=False)}" if goal else ""
    listed = "\n".join(_told(task, len(tasks)) for task in tasks if role_of(task) != "fixer")
    return _joined(asked, f"Its tasks, which must still hold after your repair:\n{listed}" if listed else "").rstrip()


def _details(task: Task) -> str:
    """What else a task list says of a task: steps, a category, whatever its author wrote."""
    more = {key: value for key, value in task.metadata.items() if key not in ("role", "finding")}
    if not more or role_of(task) == "fixer":
        return ""
    text = msgspec.json.format(msgspec.json.encode(more), indent=2).decode()
    return f"Also in the task list:\n\n{quoted(text, end=False)}"


def _list(title: str, lines: Sequence[str]) -> str:
    return f"{title}:\n" + "\n".join(f"- {line}" for line in lines) if lines else ""


def _trouble(attempt: int, trouble: str) -> str:
    return f"# Attempt {attempt - 1} was not enough\n\n{trouble}" if trouble else ""


def _said_before(said: str) -> str:
    if not said:
        return ""
    return f"The agent of that attempt said at its end, unproven:\n\n{quoted(said)}"


def _cut_off(place: Place) -> str:
    look = "`git status` and `git log` show" if place.is_git else "the files show"
    return f"An earlier turn on this was cut off before its end: {look} what it left. Go on from there."


def _checks(place: Place, when: str) -> str:
    if not place.gates:
        return "No command checks this project by itself: tests that you write and run are the only proof."
    lines = [f"- `{gate}`{_remark(place, gate)}" for gate in place.gates]
    return f"{when}, in `{place.cwd}`:\n" + "\n".join(lines) + "\nOnly its exit code counts, not what you say of it."


def _remark(place: Place, gate: str) -> str:
    if gate in place.red_before:
        return f" ({_RED_BEFORE})"
    return " (has not passed yet; it must when all tasks are done)" if gate in place.wanted else ""


def _how(place: Place) -> str:
    commit = (
        "Commit your work on the branch that is checked out, in one commit, and only the files of this task, by name: "
        "`git add -- FILES && git commit --only -m MESSAGE -- FILES`. Never `git add -A`, `git add .` or "
        f"`git commit -a`. Add commits; do not amend, rebase, reset or switch branches. Leave other branches, tags "
        f"and stashes alone.{_users_files(place)}"
        if place.is_git
        else "This folder is in no git repository: leave the files as they should be."
    )
    shared = " Others work in the same checkout at the same time: leave their files and commits alone." * place.shared
    notes = f"What the next worker must know, add to `{place.notes}` (a few lines; read it first if it is there)."
    alone = "Nobody answers questions. Do not weaken tests, checks or CI: a reviewer is shown it."
    return f"{commit}{shared}\n{notes}\n{alone}"


def _users_files(place: Place) -> str:
    if not place.users_files:
        return ""
    return (
        f"\nThese files are uncommitted work of the user: {named(place.users_files)}. Do not change, delete, stage, "
        "commit or stash them."
    )


def _rules(place: Place) -> str:
    """Where the rules are: those of the folder, and those of the repository around it."""
    paths = [folder / name for folder in _folders(Path(place.cwd)) for name in RULES]
    there = [f"`{os.path.relpath(path, place.cwd)}`" for path in paths if path.is_file()]
    return f"The project's rules are in {', '.join(there)}: they come first." if there else ""


def _folders(folder: Path) -> list[Path]:
    """From the root of the repository down to the folder; the folder alone if it is in none."""
    above = [folder, *folder.parents]
    root = next((at for at, one in enumerate(above) if git_folder(one) is not None), 0)
    return above[root::-1]


def gate_trouble(results: Sequence[GateResult]) -> str:
    """What failed, for the one who must repair it."""
    parts: list[str] = []
    for gate in results:
        how = "took too long and was ended" if gate.timed_out else f"ended with exit code {gate.exit_code}"
        parts.append(f"`{gate.command}` {how}. Its output:\n\n{quoted(gate.output_tail)}")
    return "\n\n".join(parts)


# review ------------------------------------------------------------------------------------------------------------


class Change(msgspec.Struct, frozen=True):
    """What a reviewer looks at."""

    patch: str
    cut: bool
    patch_file: str
    base: str | None  # the commit that was checked out when the run began


def reviewer_prompt(
    goal: str,
    tasks: Sequence[Task],
    evidence: Mapping[str, Evidence],
    change: Change,
    place: Place,
    *,
    attempt: int,
    before: Sequence[Finding] = (),
    problem: str = "",
) -> str:
    """Judge the change against the goal and the tasks; no word of those who did the work is in it."""
    again = f"Your last answer could not be used: {problem}\nGive the whole review once more." if problem else ""
    return _joined(
        head("reviewer", None, attempt),
        "# Review the change of this run",
        f"Goal:\n\n{quoted(goal, most=20_000, end=False)}" if goal else "",
        "Tasks:\n" + "\n".join(_reviewed(task, evidence.get(task.id), len(tasks)) for task in tasks),
        _tampered(evidence),
        _list("Findings of the last round (see for each whether it is really gone)", [_said(one) for one in before]),
        _the_change(change, place),
        _rules(place),
        again,
        "Hand the review in with the tool `submit_review` if you have it; else answer with the JSON "
        '`{"verdict": "approve" or "request_changes", "findings": […], "summary": "…"}` alone. '
        "Findings of priority 0 to 2, or without one, stop the run; 3 is only reported.",
    )


def _reviewed(task: Task, evidence: Evidence | None, count: int) -> str:
    gates = () if evidence is None else evidence.gates
    return "\n".join([_told(task, count), *(f"  - `{gate.command}`: {_verdict(gate)}" for gate in gates)])


def _told(task: Task, count: int) -> str:
    """A task as one of several: what it asks for, cut where they are many."""
    words, most = " ".join(task.description.split()), max(200, min(2_000, MOST_TASKS // count))
    asked = [f"  {words if len(words) <= most else f'{words[:most]} …'}"] if words not in ("", task.title) else []
    return "\n".join([f"- {task.id}: {task.title}", *asked, *(f"  - must hold: {line}" for line in task.acceptance)])


def _verdict(gate: GateResult) -> str:
    if gate.timed_out:
        return "took too long"
    since = ", and had not passed yet" if gate.baseline_exit_code is None else ", as before the run"
    words = "passed" if gate.exit_code == 0 else f"red (exit code {gate.exit_code}){since}"
    return f"{words}, only the second time" if gate.flaky else words


def _tampered(evidence: Mapping[str, Evidence]) -> str:
    found = [f"`{path}` (task {task})" for task, one in evidence.items() for path in one.protected_files]
    if not found:
        return ""
    return (
        "**Tests, checks or CI files were changed.** The checks above may be green only because of that. "
        "Look at each of these first, and say in a finding if a check was weakened:\n"
        + "\n".join(f"- {line}" for line in found)
    )


def _said(finding: Finding) -> str:
    where = f" ({finding.location})" if finding.location else ""
    return f"{finding.title}{where}"


def _the_change(change: Change, place: Place) -> str:
    if not change.patch:
        return "The run has changed no file."
    rng = f"The run began at commit `{change.base}`. " if change.base else ""
    whole = f"It is cut here; the whole is in `{change.patch_file}`." if change.cut else ""
    return f"{rng}This is all that changed in `{place.cwd}` since, committed or not. {whole}\n\n" + quoted(
        change.patch, most=MOST_PATCH, end=False
    )


# yolo --------------------------------------------------------------------------------------------------------------


def yolo_prompt(
    goal: str, place: Place, *, attempt: int, trouble: str = "", said: str = "", cut_off: bool = False
) -> str:
    """The same prompt again and again, in fresh contexts, until the promise is kept."""
    return _joined(
        head("worker", None, attempt),
        goal,
        _trouble(attempt, trouble),
        _said_before(said),
        _cut_off(place) if cut_off else "",
        _checks(place, "When you promise that all is done, a program runs"),
        _how(place),
        _rules(place),
        "You may be asked again, without any memory of this turn: files, commits and notes are all that is left of it. "
        "Do the next useful piece of the work completely.",
        f"Only when everything above is done and checked, end your answer with this line, alone:\n{PROMISE}\n"
        "If anything is left, do not write it; say what is left.",
    )
