"""The report of a run: the work and its proof, open tasks, and how to continue or undo
it.

The report depends only on the session folder and the ending. Only hashes, times and the
section about cost depend on which of several parallel tasks ended first, so that two
runs can be compared.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atomic.ralph.dry_report import dry_sections
from atomic.ralph.file_copies import STORE
from atomic.ralph.markdown import bullets, code, line, paragraphs, plain
from atomic.ralph.merge_run import MergeRequest, find_request
from atomic.ralph.report_data import ReportData, read_report_data
from atomic.ralph.report_sections import (
    choices_section,
    cost_section,
    done_section,
    findings_section,
    known_failures,
    open_section,
)
from atomic.ralph.report_undo import branch_commands, undo_section, unfinished_commands
from atomic.ralph.report_warnings import harm, late, late_warning, warnings
from atomic.ralph.run_folder import NOTES, SNAPSHOTS, read_notes
from atomic.ralph.users_files import changed_late
from atomic.workflows.definition import EndNote, RunEnd

REPORT = "report.md"


def at_end(end: RunEnd) -> EndNote | None:
    """Write the report and return the message of a completed run."""
    session = Path(end.session_dir)
    end.save(REPORT, report_of(session, end))
    if notes := read_notes(session):
        end.save(NOTES, notes)  # so that they are kept and exported with the session
    if end.status != "completed":
        return None
    shutil.rmtree(session / SNAPSHOTS, ignore_errors=True)  # only a run that continues needs them
    data = read_report_data(session, end.state, end.facts)
    existing = data.existing
    needs_copies = data.users.troubles or data.late or data.versions or existing.troubles or changed_late(existing)
    if not needs_copies:
        shutil.rmtree(session / STORE, ignore_errors=True)
    message = sentence(data, completed=True) + plain(harm(data) + late(data), 1000)
    if data.record.pr:
        message += f"; pull request: {plain(data.record.pr)}"
    message += f"; report: {session / REPORT}"
    if data.branch is not None and find_request(data.record.config) is None:
        message = "\n  ".join([message, *branch_commands(data, data.branch)])
    if data.options.dry_run:
        return EndNote(paragraphs(message, *dry_sections(data)))
    return EndNote(message, verified=data.is_verified)


def unfinished_work(session: Path, facts: Mapping[str, Any]) -> list[str]:
    """Return the lines that offer the work of a run that has not completed."""
    return unfinished_commands(read_report_data(session, None, facts))


def report_of(session_dir: Path, ending: RunEnd) -> str:
    """Return the report as Markdown."""
    data = read_report_data(session_dir, ending.state, ending.facts)
    late = late_warning(data) if ending.status == "completed" else ""
    if data.options.dry_run:
        sections = dry_sections(data)
    else:
        sections = [
            done_section(data),
            open_section(data),
            findings_section(data),
            choices_section(data),
            cost_section(data),
            undo_section(data),
        ]
    return paragraphs(_head(data, ending), warnings(data), late, *sections) + "\n"


def pull_request_body(data: ReportData) -> str:
    """Return the parts of a report that belong in a pull request: the work and its
    proof.
    """
    return paragraphs(f"{line(sentence(data, completed=True), 500)}.", warnings(data), done_section(data)) + "\n"


def sentence(data: ReportData, *, completed: bool) -> str:
    """Return the result of the run as one line of plain text.

    Of a completed run, also what proves it.
    """
    if data.options.dry_run:
        planned = f"{_count(len(data.tasks), 'task')} planned, " if data.tasks else ""
        return f"dry run: {planned}nothing was done"
    request = find_request(data.record.config)
    if request is not None:
        return _merge_result(data, request, completed)
    result = _yolo_result(data, completed) if data.is_yolo else _tasks_result(data)
    return f"{result}{_proof(data)}" if completed else result


def _merge_result(data: ReportData, request: MergeRequest, completed: bool) -> str:
    names = f"{plain(request.branch.name)} and {plain(request.target)}"
    if not completed:
        return f"the merge of {names} is not done"
    commands = " and ".join(plain(command) for command in data.verifying)
    return f"{names} are merged in a workspace, {f'verified by {commands}' if commands else 'not verified by a check'}"


def _yolo_result(data: ReportData, completed: bool) -> str:
    turns = "" if data.state is None else f" after {_count(data.state.iteration, 'turn')}"
    if not completed:
        return f"the promise is not kept{turns}"
    if data.verifying:
        return f"the promise was kept{turns}"
    return f"the agent reports that it is done{turns}"


def _tasks_result(data: ReportData) -> str:
    if not data.tasks:
        return "there are no tasks, so nothing was done"
    done, total = data.count(repairs=False)
    repaired, found = data.count(repairs=True)
    result = f"{done} of {_count(total, 'task')}"
    if found:
        result += f" and {repaired} of {_count(found, 'repair')}"
    result += " is done" if total == 1 and not found else " are done"
    before = sum(not data.worked_on(task) for task in data.done)
    return f"{result} ({before} of them before this run)" if before else result


def _proof(data: ReportData) -> str:
    """Return which checks verified the work, and whether it was reviewed, as the end of a
    sentence.
    """
    commands = " and ".join(plain(command) for command in data.verifying)
    verified = f"verified by {commands}" if commands else "not verified by a check"
    if data.is_reviewed is None:
        return f", {verified}; whether it was reviewed is not known"
    if commands and data.branch is not None and not data.is_yolo:
        reviewed = " and reviewed" if data.is_reviewed else ", not reviewed"
        return f"{reviewed}, each proven on its own commit and again after merging ({commands}){_unproven(data)}"
    joint = " and" if bool(data.verifying) is data.is_reviewed else ","
    return f", {verified}{joint} {'reviewed' if data.is_reviewed else 'not reviewed'}{_unproven(data)}"


def _unproven(data: ReportData) -> str:
    return _compared(data) + _ignored(data)


def _compared(data: ReportData) -> str:
    """Return of which checks only tests were compared, as the end of a sentence."""
    parts = [
        f"; {plain(command)}: {known_failures(number)} (only tests were compared)"
        for command, number in data.known_failures.items()
    ]
    return "".join(parts)


def _ignored(data: ReportData) -> str:
    if not data.checks.ignored:
        return ""
    return f"; {' and '.join(plain(command) for command in data.checks.ignored)}: red before the run and ignored"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _head(data: ReportData, ending: RunEnd) -> str:
    completed = ending.status == "completed"
    title = f"# Ralph{_status_words(data, ending)}: {line(sentence(data, completed=completed), 500)}{harm(data)}"
    if completed:  # otherwise a resume takes late changes for the user's
        title += late(data)
    unknown = ""
    if data.state is None:
        unknown = "The run's state is not known: reviews and the authors of commits are missing here."
    record = data.record
    run = code(data.id)
    if record.workflow:
        run += f" in {code(record.cwd or record.project)}"
    facts = {
        "Status": f"{code(ending.status)}, reason {code(ending.reason)}",
        "Why": line(ending.plain or ending.message, 2000),
        "To continue": "" if completed else _next_step(data, ending),
        "Run": run,
        "Goal": line(data.options.goal or record.prompt),
        "From": code(data.options.origin) if data.options.origin else "",
        "Pull request": code(record.pr) if record.pr else "",
    }
    return paragraphs(title, unknown, bullets(f"**{name}**: {text}" for name, text in facts.items() if text))


def _status_words(data: ReportData, ending: RunEnd) -> str:
    if ending.status == "completed" and data.options.dry_run:
        return ""  # only the plan is complete, and `sentence` has that
    if ending.status == "completed":
        unproven = "" if data.is_verified else ", not verified"
        ignored = ", with red checks ignored" if data.checks.ignored else ""
        return f" completed{unproven}{ignored}"
    words = {"failed": " failed", "cancelled": " was cancelled"}
    return words.get(ending.status, f" is {plain(ending.status)}")


_NEXT_STEPS = {
    "question": 'answer it (`atomic answer {id} "ANSWER"`), or continue with `atomic resume {id}`.',
    "nothing_runnable": "see below why each task is not done, fix the cause, then "
    "`atomic resume {id}`: failed tasks get three more attempts.",
    "stuck": "read the attempts below, change the task, the check or the agent, then "
    "`atomic resume {id}`: it gets three more attempts.",
    "check_red": "see the output of the check below; make it green, then `atomic resume {id}`: it is checked again.",
    "moving_tree": "find out what changes the files, stop it, then `atomic resume {id}`: they are checked and reviewed "
    "again.",
    "same_blocker": "the fixers cannot fix it, or it is not a defect: decide, fix it yourself if needed, then "
    "`atomic resume {id}`: the work is reviewed again from the start.",
    "review_rounds": "decide about the open findings; `atomic resume {id}` reviews again with as many rounds "
    "(`atomic resume {id} --review-rounds N` for more).",
    "not_approved": "read the review below; `atomic resume {id}` reviews again.",
    "no_plan": "describe the goal more precisely and start again, or give a list with `--tasks`; `atomic resume "
    "{id}` asks the planner again.",
    "branch_changed": "switch back to the branch of the run, then `atomic resume {id}`; otherwise it continues where "
    "you are.",
    "max_cost": "`atomic resume {id} --max-cost USD` with a higher number; without one it pauses again.",
    "max_tokens": "`atomic resume {id} --max-tokens N` with a higher number; without one it pauses again.",
    "max_time": "`atomic resume {id} --max-time TIME` with a longer one; without one it pauses again.",
    "max_iterations": "`atomic resume {id} --max-iterations N` with a higher number; without one it pauses again.",
    "provider_limit": "`atomic resume {id}` when the limit has been reset, or now `atomic resume {id} --agent OTHER`.",
    "error": "fix what failed, then `atomic resume {id}`: the failed step is tried again, finished ones are not.",
}

_RED_BEFORE_THE_RUN = (
    "see the output of the check above; repair it, then `atomic resume {id}`, or decide what it means: "
    "`atomic resume {id} --red-checks goal` (or `ignore`). For another command start a new run with `--verify`."
)


def _next_step(data: ReportData, ending: RunEnd) -> str:
    if ending.status == "cancelled":
        return "the run was cancelled for good and cannot be resumed; start a new run for the rest."
    text = _NEXT_STEPS.get(ending.reason, "`atomic resume {id}`: finished steps are not repeated.")
    if ending.reason == "branch_changed" and data.branch is not None:
        text = "put the branch of the run back as said above, then `atomic resume {id}`."
    if ending.reason == "check_red" and not data.calls:
        text = _RED_BEFORE_THE_RUN
    return text.format(id=data.id)
