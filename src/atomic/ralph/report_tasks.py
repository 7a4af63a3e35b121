"""The sections of a report about the work: what is done, what is not done and why, and the reviewers' findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from atomic.base.text import duration
from atomic.ralph.checks import readable
from atomic.ralph.evidence import CheckResult, Evidence
from atomic.ralph.markdown import bullets, code, codes, line, paragraphs
from atomic.ralph.prompts import is_check_repair, quoted, role_of
from atomic.ralph.report_data import ReportData
from atomic.ralph.review import Finding
from atomic.ralph.yolo import TASK as YOLO
from atomic.tasks import Task, TaskStatus

MAX_FILES = 20  # named in one line
MAX_OUTPUT = 1500  # characters of a red check's output
MAX_REASON = 600  # characters of a reason or a finding


# done ----------------------------------------------------------------------------------------------------------------


def done_section(data: ReportData) -> str:
    """Return what is done, with the evidence for each task."""
    if data.is_yolo:
        parts = [bullets(_evidence(data, proof)) for proof in data.proofs]
    else:
        parts = [f"{_title(task)}\n\n{bullets(_proof(data, task))}" for task in data.done]
    shared = ""
    if parts and data.is_shared and data.proofs:
        files = sorted({path for proof in data.proofs for path in proof.changed_files})
        shared = (
            f"{data.options.workers} workers shared one checkout: what changed cannot be told apart by task. "
            f"All that changed: {_files(files)}."
        )
    return paragraphs("## Done, with evidence", shared, *(parts or ["Nothing."]))


def _title(task: Task) -> str:
    return f"### {code(task.id)} {line(task.title)}"


def _proof(data: ReportData, task: Task) -> list[str]:
    evidence = data.evidence.get(task.id)
    if task.status is TaskStatus.SKIPPED:
        return ["Skipped, as its list says: nothing was done or verified."]
    if evidence is not None and evidence.status == "passed":
        return _evidence(data, evidence)
    if evidence is not None:
        return [f"**Its evidence does not say that it is done**: {line(evidence.reason, MAX_REASON)}"]
    if data.worked_on(task):
        return ["**There is no evidence** of it in the session's folder."]
    return ["It was completed in the list that this run was given; nobody has verified it here."]


def _evidence(data: ReportData, evidence: Evidence) -> list[str]:
    facts = [_check(check) for check in evidence.gates]
    if not facts:
        facts.append("**Not verified by a check.**")
    elif not any(check.blocking and check.exit_code == 0 for check in evidence.gates):
        facts.append("**Not verified by a check**: none that was green before the run, or since, has passed.")
    if data.is_shared:
        return facts
    where = _where(data, evidence)
    if not evidence.changed_files:
        return [*facts, f"No file changed; {where}"]
    stat = evidence.diffstat
    size = f"{stat.files} file{'' if stat.files == 1 else 's'}, +{stat.insertions} −{stat.deletions}"
    facts.append(f"{size}: {_files(evidence.changed_files)}; {where}")
    if evidence.protected_files:
        facts.append(f"**Changed tests, checks or CI files**: {_files(evidence.protected_files)}")
    return facts


def _check(check: CheckResult) -> str:
    """Return how a check ended."""
    command = code(check.command)
    took = duration(check.seconds)
    if check.exit_code == 0:
        flaky = ", **but only the second time: it is flaky**" if check.flaky else ""
        return f"{command} passed (exit code 0, {took}){flaky}"
    ended = "took too long and was ended" if check.timed_out else f"ended with exit code {check.exit_code}"
    if check.blocking:
        return f"{command} {ended} ({took})"
    before = "had not passed yet" if check.baseline_exit_code is None else "was red before the run"
    return f"{command} {ended} ({took}); it {before}, so it does not hold up a task"


def _where(data: ReportData, evidence: Evidence) -> str:
    """Return which commit has the work."""
    if evidence.commit is None:
        return "in no commit"
    spans = data.spans(evidence)
    if not spans:
        return f"HEAD was {code(evidence.commit)}"
    commits = [span.after.head for span in spans if span.after.head != span.before.head]
    if not commits:
        return f"not committed (HEAD is {code(evidence.commit)})"
    rest = f", but **not committed**: {_files(evidence.uncommitted)}" if evidence.uncommitted else ""
    return f"commit {code(str(commits[-1]))}{rest}"


def _files(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - MAX_FILES} more" if len(paths) > MAX_FILES else ""
    return f"{codes(paths[:MAX_FILES])}{more}"


# not done ------------------------------------------------------------------------------------------------------------


def open_section(data: ReportData) -> str:
    """Return what is not done, with the reason for each task."""
    if data.is_yolo:
        parts = _yolo_open(data)
    else:
        waiting = data.task_list.waiting()
        parts = [_open(data, task, waiting.get(task.id)) for task in data.open]
    return paragraphs("## Not done, and why", *parts) if parts else ""


def _yolo_open(data: ReportData) -> list[str]:
    evidence = data.evidence.get(YOLO)
    if evidence is not None and evidence.status == "passed":
        return []
    said = "" if data.state is None else data.state.said.get(YOLO, "")
    reason = "The agent has not given its promise."
    if evidence is not None:
        reason = line(evidence.reason, MAX_REASON)
    facts = bullets([reason, f"the worker said, unproven: {line(said, MAX_REASON)}" if said else ""])
    return [facts, *([] if evidence is None else _red_checks(data, evidence))]


_STATES = {TaskStatus.FAILED: "failed", TaskStatus.BLOCKED: "blocked"}


def _open(data: ReportData, task: Task, waiting: str | None) -> str:
    evidence = data.evidence.get(task.id)
    why = waiting or _why(data, task, evidence)
    facts = [f"{_STATES.get(task.status, 'not done')}: {line(why, MAX_REASON)}"]
    tries = [] if data.state is None else data.state.tries.get(task.id, [])
    for said in dict.fromkeys(one.said for one in tries if one.said):  # the same words once
        facts.append(f"the {role_of(task)} said, unproven: {line(said, MAX_REASON)}")
    parts = [_title(task), bullets(facts)]
    if evidence is not None and evidence.status == "failed":
        red = _red_checks(data, evidence)
        if not red and is_check_repair(task):
            # No file changed, so the checks did not run again: the task has their first output.
            red = [task.description]
        parts += red
    return paragraphs(*parts)


def _why(data: ReportData, task: Task, evidence: Evidence | None) -> str:
    reason = ""
    if evidence is not None and evidence.status != "passed":
        attempts = "one attempt" if evidence.attempt == 1 else f"{evidence.attempt} attempts"
        reason = f"{evidence.reason or 'no reason is known'} (after {attempts})"
    if task.status is TaskStatus.FAILED:
        return reason or "no attempt left evidence"
    if task.status is TaskStatus.IN_PROGRESS or data.worked_on(task):
        return f"begun, not finished; so far: {reason}" if reason else "begun, not finished"
    return "ready, not begun when the run ended"


def _red_checks(data: ReportData, evidence: Evidence) -> list[str]:
    """Return the checks that stopped a task, each with the end of its output."""
    texts: list[str] = []
    for check in evidence.gates:
        if check.exit_code == 0 or not (check.blocking or data.checks.must_pass(check.command)):
            continue
        output = "(nothing)"
        if check.output_tail.strip():
            output = quoted(readable(check.output_tail.encode("utf-8", "replace")), most=MAX_OUTPUT)
        texts.append(f"{_check(check)}. The end of its output:\n\n{output}")
    return texts


# findings ------------------------------------------------------------------------------------------------------------


def findings_section(data: ReportData) -> str:
    """Return the reviewers' findings: those that block, and those that are only reported."""
    state = data.state
    if data.is_yolo or (state is not None and not state.reviews):
        return ""
    if state is None:
        return "## Findings\n\nNot known: the run's state could not be read."
    parts: list[str] = []
    if not state.over:
        if state.rounds and state.rounds[-1]:
            parts.append(f"### Open, they block\n\n{_findings(data, state.rounds[-1])}")
        for review in state.reviews[-data.options.reviewers :]:
            if not review.approved and not review.blockers:
                reason = review.problem or review.summary or "no reason is given"
                parts.append(f"- Not approved: {line(reason, MAX_REASON)}")
    reported = {one.key: one for review in state.reviews for one in review.findings if not one.blocks}
    if reported:
        parts.append(f"### Only reported (P3), of all rounds\n\n{_findings(data, reported.values())}")
    if not parts:
        parts.append("None is open." if state.over else "None blocks so far.")
    return paragraphs("## Findings", *parts)


def _findings(data: ReportData, findings: Iterable[Finding]) -> str:
    return bullets(_finding(data, finding) for finding in findings)


def _finding(data: ReportData, finding: Finding) -> str:
    priority = "without priority" if finding.priority is None else f"P{finding.priority}"
    where = f" at {code(finding.location)}" if finding.location else ""
    body = f": {line(finding.body, MAX_REASON)}" if finding.body.strip() else ""
    text = f"**{priority}**{where}: {line(finding.title)}{body}"
    for task in reversed(data.tasks):
        if finding.blocks and task.title == finding.title and role_of(task) == "fixer":
            done = "is done, but no review has seen it" if task.status.is_done else "is not done"
            return f"{text} (its repair {code(task.id)} {done})"
    return text
