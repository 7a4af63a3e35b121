"""The report of a run: what is done and how that is known, what is not, and how to go on, accept or undo it.

It is a function of the session's folder and the ending. Nothing in it but hashes, times and the section about cost
depends on which of several parallel tasks ended first, so that two runs can be compared.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from atomic.workflows.definition import EndNote, RunEnd
from atomic.workflows.ralph.account import Account, read_account
from atomic.workflows.ralph.desk import PICTURES
from atomic.workflows.ralph.dry_report import dry_sections
from atomic.workflows.ralph.markdown import code, line, plain
from atomic.workflows.ralph.notes import NOTES, read_notes
from atomic.workflows.ralph.report_banner import late_part, loud_part
from atomic.workflows.ralph.report_costs import chosen_section, cost_section
from atomic.workflows.ralph.report_tasks import done_section, findings_section, left_section
from atomic.workflows.ralph.report_undo import undo_section
from atomic.workflows.ralph.users_files import CHECKS, STORE, changed_late, describe, named, shown

REPORT = "report.md"


def at_end(end: RunEnd) -> EndNote | None:
    """Leave the report; the sentence for people, where the ending has none of its own."""
    session = Path(end.session_dir)
    end.save(REPORT, report_of(session, end))
    if notes := read_notes(session):
        end.save(NOTES, notes)  # so that they are kept and exported with the session
    if end.status != "completed":
        return None
    shutil.rmtree(session / PICTURES, ignore_errors=True)  # only a run that goes on needs them
    account = read_account(session, end.state, end.facts)
    existing = account.existing
    is_needed = account.users.troubles or account.late or account.versions or existing.troubles
    if not is_needed and not changed_late(existing):
        shutil.rmtree(session / STORE, ignore_errors=True)
    more = plain(_refused(account) + _touched(account) + _deleted(account) + _lost(account) + _late(account), 1000)
    opened = f"; pull request: {plain(account.record.pr)}" if account.record.pr else ""
    said = f"{sentence(account, completed=True)}{more}{opened}; report: {session / REPORT}"
    if account.options.dry_run:
        return EndNote("\n\n".join([said, *filter(None, dry_sections(account))]))
    return EndNote(said, verified=bool(account.verifying))


def report_of(session_dir: Path, ending: RunEnd) -> str:
    """The report, as Markdown."""
    account = read_account(session_dir, ending.state, ending.facts)
    late = late_part(account) if ending.status == "completed" else ""
    parts = [_head(account, ending), loud_part(account), late]
    parts += dry_sections(account) if account.options.dry_run else _sections(account)
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def done_part(account: Account) -> str:
    """What of a report belongs into a pull request: what is done, and how that is known."""
    parts = (f"{line(sentence(account, completed=True), 500)}.", loud_part(account), done_section(account))
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _sections(account: Account) -> list[str]:
    return [
        done_section(account),
        left_section(account),
        findings_section(account),
        chosen_section(account),
        cost_section(account),
        undo_section(account),
    ]


# the sentence --------------------------------------------------------------------------------------------------------


def sentence(account: Account, *, completed: bool) -> str:
    """What came of the run, in one line of plain text. How it is known is told of a completed one only."""
    if account.options.dry_run:
        return _dry(account)
    told = _yolo(account, completed) if account.is_yolo else _counted(account)
    return f"{told}, {_known_by(account)}" if completed else told


def _dry(account: Account) -> str:
    count = len(account.tasks)
    return f"dry run: {_number(count, 'task')} planned, nothing was done" if count else "dry run: nothing was done"


def _yolo(account: Account, completed: bool) -> str:
    turns = "" if account.state is None else f" after {_number(account.state.iteration, 'turn')}"
    if completed and not account.verifying:  # only the agent says so
        return f"the agent says that it is done{turns}"
    return f"the promise was kept{turns}" if completed else f"the promise is not kept{turns}"


def _counted(account: Account) -> str:
    if not account.tasks:
        return "there are no tasks, so nothing was done"
    (done, total), (repaired, found) = account.count(repairs=False), account.count(repairs=True)
    repairs = f" and {repaired} of {_number(found, 'repair')}" if found else ""
    before = sum(not account.worked_on(task) for task in account.done)
    earlier = f" ({before} of them before this run)" if before else ""
    return f"{done} of {_number(total, 'task')}{repairs} {'is' if total == 1 and not found else 'are'} done{earlier}"


def _known_by(account: Account) -> str:
    verifying, reviewed = account.verifying, account.is_reviewed
    gates = " and ".join(plain(command) for command in verifying)
    first = f"verified by {gates}" if verifying else "not verified by a check"
    if reviewed is None:
        return f"{first}; whether it was reviewed is not known"
    second = "reviewed" if reviewed else "not reviewed"
    return f"{first}{' and' if bool(verifying) is reviewed else ','} {second}{_ignored(account)}"


def _ignored(account: Account) -> str:
    if not (names := " and ".join(plain(command) for command in account.book.ignored)):
        return ""
    return f"; {names}: red before the run and ignored"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


# the head ------------------------------------------------------------------------------------------------------------


def _head(account: Account, ending: RunEnd) -> str:
    completed = ending.status == "completed"
    told = sentence(account, completed=completed)
    record, goal = account.record, account.options.goal or account.record.prompt
    facts = [
        ("Status", f"{code(ending.status)}, reason {code(ending.reason)}"),
        ("Why", line(why, 2000) if (why := ending.plain or ending.message) else ""),
        ("To continue", "" if completed else _go_on(ending, account)),
        ("Run", f"{code(account.id)} in {code(record.cwd or record.project)}" if record.workflow else code(account.id)),
        ("Goal", line(goal) if goal else ""),
        ("From", code(account.options.origin) if account.options.origin else ""),
        ("Pull request", code(record.pr) if record.pr else ""),
    ]
    lines = [f"- **{name}**: {text}" for name, text in facts if text]
    unknown = "The run's state is not known: reviews and the authors of commits are missing here." * (
        account.state is None
    )
    harm = f"{_refused(account)}{_touched(account)}{_deleted(account)}{_lost(account)}"
    title = f"# Ralph{_word(account, ending)}: {line(told, 500)}{harm}"
    if completed:  # otherwise a resume takes them for the user's
        title += _late(account)
    return "\n\n".join(part for part in (title, unknown, "\n".join(lines)) if part)


def _refused(account: Account) -> str:
    """That work is in no commit although it should be, where a hook may be why."""
    files = account.uncommitted
    if not files:
        return ""
    many = "1 file is" if len(files) == 1 else f"{len(files)} files are"
    hooks = " or ".join(code(name) for name in account.hooks)
    return f"; {many} not committed, perhaps because the commit hook {hooks} refused"


def _touched(account: Account) -> str:
    """That the user's own files are not as they were."""
    troubles, own = account.users.troubles, account.users.committed
    committed = [f"{code(shown(path))} (commit {commit[:12]})" for path, commit in own.items()]
    told_own = f"; committed during a turn, probably by you: {_first(committed)}" if committed else ""
    if not troubles:
        return told_own
    told = [describe(code(shown(path)), trouble) for path, trouble in troubles.items()]
    by_checks = all(trouble.task == CHECKS for trouble in troubles.values())
    return f"; your uncommitted work was touched{'' if by_checks else ' by a turn or by you'}: {_first(told)}{told_own}"


def _deleted(account: Account) -> str:
    """That files are gone which were there before the run and in no commit."""
    gone = list(account.existing.troubles)
    if not gone:
        return ""
    many = "1 file of yours that was in no commit was"
    if len(gone) > 1:
        many = f"{len(gone)} files of yours that were in no commit were"
    return f"; {many} deleted: {named(gone, most=3)}"


def _lost(account: Account) -> str:
    """That branches, tags or stashes of the user are gone or moved."""
    return f"; {_first([line(one.said) for one in account.lost_refs])}" if account.lost_refs else ""


def _first(told: Sequence[str]) -> str:
    more = f" and {len(told) - 3} more" if len(told) > 3 else ""
    return f"{', '.join(told[:3])}{more}"


def _late(account: Account) -> str:
    """Return that files of the user changed after the last comparison."""
    return f"; changed after the last turn: {named(account.late, most=3)}" if account.late else ""


def _word(account: Account, ending: RunEnd) -> str:
    if account.options.dry_run and ending.status == "completed":
        return ""  # what is completed is the plan: the sentence says so
    if ending.status == "completed":
        unproven = "" if account.verifying else ", not verified"
        ignored = ", with red checks ignored" if account.book.ignored else ""
        return f" completed{unproven}{ignored}"
    words = {"failed": " failed", "cancelled": " was cancelled"}
    return words.get(ending.status, f" is {plain(ending.status)}")


_DECIDE = {
    "question": 'answer it (`atomic answer {id} "ANSWER"`), or continue with `atomic resume {id}`.',
    "nothing_runnable": "see below why each task is not done, fix the cause, then "
    "`atomic resume {id}`: failed tasks get three more attempts.",
    "stuck": "see below what happened, change the task, the check or the agent, then "
    "`atomic resume {id}`: it gets three more attempts.",
    "check_red": "see below what the check says; make it green, then `atomic resume {id}`: it is checked again.",
    "moving_tree": "find out what changes the files, stop it, then `atomic resume {id}`: they are checked and reviewed "
    "again.",
    "same_blocker": "the fixers cannot fix it, or it is not a defect: decide, fix it yourself if needed, then "
    "`atomic resume {id}`: the work is reviewed again from the start.",
    "review_rounds": "decide about the open findings; `atomic resume {id}` reviews again with as many rounds "
    "(`atomic resume {id} --review-rounds N` for more).",
    "not_approved": "read below what the reviewer says; `atomic resume {id}` reviews again.",
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


_DECIDE_BEFORE = (
    "see above what the check says; repair it, then `atomic resume {id}`, or say what it means: "
    "`atomic resume {id} --red-checks goal` (or `ignore`). For another command start a new run with `--verify`."
)


def _go_on(ending: RunEnd, account: Account) -> str:
    id = account.id
    if ending.status == "cancelled":
        return "the run was cancelled for good and cannot be resumed; start a new run to work on what is left."
    if ending.reason == "check_red" and not account.calls:
        return _DECIDE_BEFORE.format(id=id)
    return _DECIDE.get(ending.reason, "`atomic resume {id}`: what is finished is not done again.").format(id=id)
