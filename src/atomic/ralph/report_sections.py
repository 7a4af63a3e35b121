"""The sections of a report: the work, the findings, the choices, the cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from atomic.base.text import duration
from atomic.base.usage import dollars
from atomic.loading.project_check import CheckCommand
from atomic.ralph.checks import readable
from atomic.ralph.evidence import CheckResult, Evidence
from atomic.ralph.isolated_tasks import unmerged
from atomic.ralph.markdown import bullets, cell, code, codes, line, paragraphs
from atomic.ralph.options import PLAN, PROJECT_SETTINGS, SETTINGS
from atomic.ralph.prompts import is_check_repair, quoted, role_of
from atomic.ralph.report_data import ReportData
from atomic.ralph.review import Finding
from atomic.ralph.yolo import TASK as YOLO
from atomic.runs.spending import KILLED, Amount, CallRecord
from atomic.tasks import Task, TaskStatus

MAX_FILES = 20  # named in one line
MAX_OUTPUT = 1500  # characters of a red check's output
MAX_REASON = 600  # characters of a reason or a finding

_STATES = {TaskStatus.FAILED: "failed", TaskStatus.BLOCKED: "blocked"}
_ORIGINS = {
    PLAN: "named by the plan",
    "--verify": "given by `--verify`",
    SETTINGS: "given by `verify` in your own configuration",
    PROJECT_SETTINGS: "given by `verify` in the project's `.atomic/config.toml`",
}


def done_section(data: ReportData) -> str:
    """Return the finished work, with the evidence for each task."""
    if data.is_yolo:
        parts = [bullets(_evidence(data, proof)) for proof in data.proofs]
    else:
        parts = [paragraphs(_title(task), bullets(_proof(data, task))) for task in data.done]
    shared = ""
    if parts and data.is_shared and data.proofs:
        files = sorted({path for proof in data.proofs for path in proof.changed_files})
        shared = (
            f"{data.options.workers} workers shared one checkout: changes cannot be assigned to tasks. "
            f"All changed files: {_files(files)}."
        )
    return paragraphs("## Done, with evidence", shared, *(parts or ["Nothing."]))


def _title(task: Task) -> str:
    return f"### {code(task.id)} {line(task.title)}"


def _proof(data: ReportData, task: Task) -> list[str]:
    evidence = data.evidence.get(task.id)
    if task.status is TaskStatus.SKIPPED:
        return ["Skipped by its list: nothing was done or verified."]
    if evidence is not None and evidence.status == "passed":
        undone = ["**Its changes were undone while no agent worked.**"] if task.id in data.undone else []
        return [*_evidence(data, evidence), *undone]
    if evidence is not None:
        return [f"**Its evidence does not show that it is done**: {line(evidence.reason, MAX_REASON)}"]
    if data.worked_on(task):
        return ["**There is no evidence** of it in the session's folder."]
    return ["Its list has it as completed; this run did not verify it."]


def _evidence(data: ReportData, evidence: Evidence) -> list[str]:
    facts = [_check_result(check) for check in evidence.checks]
    if not facts:
        facts.append("**Not verified by a check.**")
    elif not any(check.blocking and check.exit_code == 0 for check in evidence.checks):
        facts.append(_why_unverified(evidence))
    if data.is_shared:
        return facts
    where = _where(data, evidence)
    if not evidence.changed_files:
        return [*facts, f"No file changed; {where}"]
    stat = evidence.diffstat
    size = f"{stat.files} file{'' if stat.files == 1 else 's'}, +{stat.insertions} −{stat.deletions}"
    facts.append(f"{size}: {_files(evidence.changed_files)}; {where}")
    facts += [f"After merging: {_check_result(check)}" for check in evidence.merged_checks]
    for path, lines in evidence.dropped.items():
        facts.append(f"**Merging took lines away that another task had added** to {code(path)}: {codes(lines[:5])}")
    if evidence.rewritten:
        facts.append(
            f"The checks changed {_files(evidence.rewritten)} in their own copy; the commit does not have that"
        )
    if evidence.protected_files:
        facts.append(f"**Changed tests, checks or CI files**: {_files(evidence.protected_files)}")
    return facts


def _why_unverified(evidence: Evidence) -> str:
    if any(check.tolerated for check in evidence.checks):
        return "**Not verified by a check**: no other test fails than before the run. Nothing else was compared."
    return "**Not verified by a check**: none that was green before the run, or since, has passed."


def known_failures(number: int) -> str:
    """Return how many tests fail as before the run."""
    return "1 known failure is left" if number == 1 else f"{number} known failures are left"


def _check_result(check: CheckResult) -> str:
    command = code(check.command)
    took = duration(check.seconds)
    if check.exit_code == 0:
        flaky = ", **but only the second time: it is flaky**" if check.flaky else ""
        return f"{command} passed (exit code 0, {took}){flaky}"
    if check.tolerated and check.tests is not None:
        left = known_failures(len(check.tests.failed))
        return f"{command} ended with exit code {check.exit_code} ({took}), as before the run: {left}, and no other"
    ended = "took too long and was ended" if check.timed_out else f"ended with exit code {check.exit_code}"
    if check.blocking:
        return f"{command} {ended} ({took})"
    before = "had not passed yet" if check.baseline_exit_code is None else "was red before the run"
    return f"{command} {ended} ({took}); it {before}, so it does not hold up a task"


def _where(data: ReportData, evidence: Evidence) -> str:
    """Return which commit has the work."""
    if evidence.commit is None:
        return "in no commit"
    if data.branch is not None and evidence.merged:
        return f"commit {code(evidence.merged)} of the branch {code(data.branch.name)}"
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


def open_section(data: ReportData) -> str:
    """Return the unfinished work, with the reason for each task."""
    if data.is_yolo:
        parts = _yolo_open(data)
    else:
        waiting = data.task_list.waiting()
        parts = [_open(data, task, waiting.get(task.id)) for task in data.open]
    return paragraphs("## Not done, and why", *parts) if parts else ""


def _yolo_open(data: ReportData) -> list[str]:
    evidence = data.evidence.get(YOLO)
    said = "" if data.state is None else data.state.said.get(YOLO, "")
    unproven = f"the worker's last message, unproven: {line(said, MAX_REASON)}" if said else ""
    if evidence is None:
        return [bullets(["The agent has not given its promise.", unproven])]
    if evidence.status == "passed":
        return []
    return [bullets([line(evidence.reason, MAX_REASON), unproven]), *_red_checks(data, evidence)]


def _open(data: ReportData, task: Task, waiting: str | None) -> str:
    evidence = data.evidence.get(task.id)
    why = waiting or _why(data, task, evidence)
    facts = [f"{_STATES.get(task.status, 'not done')}: {line(why, MAX_REASON)}"]
    tries = [] if data.state is None else data.state.tries.get(task.id, [])
    for said in dict.fromkeys(one.said for one in tries if one.said):  # each message once
        facts.append(f"the {role_of(task)}'s last message, unproven: {line(said, MAX_REASON)}")
    red: list[str] = []
    if evidence is not None and evidence.status == "failed":
        red = _red_checks(data, evidence)
        if not red and is_check_repair(task):
            # No file changed, so the checks did not run again: the task has their first
            # output.
            red = [task.description]
    return paragraphs(_title(task), bullets(facts), *red, unmerged(tries, data.returned(task)))


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
    for check in evidence.checks:
        if check.exit_code == 0 or not (check.blocking or data.checks.must_pass(check.command)):
            continue
        output = "(nothing)"
        if check.output_tail.strip():
            output = quoted(readable(check.output_tail.encode("utf-8", "replace")), most=MAX_OUTPUT)
        texts.append(f"{_check_result(check)}. The end of its output:\n\n{output}")
    return texts


def findings_section(data: ReportData) -> str:
    """Return the reviewers' findings: blocking ones, and others."""
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
    lines: list[str] = []
    for finding in findings:
        priority = "without priority" if finding.priority is None else f"P{finding.priority}"
        where = f" at {code(finding.location)}" if finding.location else ""
        body = f": {line(finding.body, MAX_REASON)}" if finding.body.strip() else ""
        lines.append(f"**{priority}**{where}: {line(finding.title)}{body}{_repair(data, finding)}")
    return bullets(lines)


def _repair(data: ReportData, finding: Finding) -> str:
    """Return whether the latest repair of a blocking finding is done."""
    for task in reversed(data.tasks):
        if finding.blocks and task.title == finding.title and role_of(task) == "fixer":
            done = "is done, but no review has seen it" if task.status.is_done else "is not done"
            return f" (its repair {code(task.id)} {done})"
    return ""


def choices_section(data: ReportData) -> str:
    """Return the checks, review, workers and agents, and who chose them."""
    workers = "one at a time, in your checkout"
    if data.branch is not None:
        many = "one at a time" if data.options.workers == 1 else f"at most {data.options.workers} at once"
        workers = f"{many}, each in its own copy of the project (`--isolate`: {data.branch.kind})"
        workers += "".join(f"; {line(reason)}" for reason in data.branch.reasons)
    if data.is_shared:
        workers = (
            f"{data.options.workers} at once in one checkout: a check may have failed, or passed, because of another's"
            " work"
        )
    lines = [*check_lines(data), f"Review: {_review(data)}", f"Workers: {workers}", *_agents(data)]
    return paragraphs("## Choices, and who made them", bullets(lines))


def check_lines(data: ReportData) -> list[str]:
    """Return the checks, who chose them, and their results before the run."""
    if data.checks.chosen:
        return [_check(data, check) for check in data.checks.chosen]
    if data.checks.refused:
        names = codes(data.checks.refused)
        return [f"Check: {names} was found and not run: the project is not approved (`atomic trust`)"]
    return ["Check: none was given and none was found: **not verified by a check**. `--verify COMMAND` gives one."]


def _check(data: ReportData, check: CheckCommand) -> str:
    origin = _ORIGINS.get(check.origin) or f"found in {code(check.origin)} by Atomic, none was given"
    command = check.command
    has_passed = command in data.checks.passed_once
    before = data.checks.baseline.get(command)
    if before is None and command in data.checks.late:
        result = f"added during the run: it has {'' if has_passed else 'not '}passed"
    elif before is None:
        result = "it has not been run"
    elif before == 0:
        result = "green before the run"
    elif has_passed:
        result = f"**red before the run** (exit code {before}): it has passed since, and blocks from then on"
    elif command in data.known_failures:
        left = known_failures(data.known_failures[command])
        result = (
            f"**red before the run** (exit code {before}): it has not passed since. {left} (only tests were compared)"
        )
    else:
        ignored = "; it is ignored" if command in data.checks.ignored else ""
        result = f"**red before the run** (exit code {before}): it has not passed since, so it proves nothing{ignored}"
    return f"Check: {code(command)} ({origin}); {result}"


def _review(data: ReportData) -> str:
    if data.is_yolo:
        return "**not reviewed**, as with every `--yolo`"
    if not data.options.review_rounds:
        return "**not reviewed**: `--review-rounds` is 0"
    if data.state is None:
        verdict = "whether it was approved is not known"
    elif not data.state.reviews:
        return "**not reviewed**: the run ended before the review"
    else:
        verdict = "approved" if data.is_reviewed else "**not approved**"
    return f"{verdict} (reviewers: {data.options.reviewers}, at most {data.options.review_rounds} rounds)"


def _agents(data: ReportData) -> list[str]:
    lines: list[str] = []
    choices = (data.record.options.get(kind) for kind in ("agents", "models"))
    chosen = {role for choice in choices if isinstance(choice, Mapping) for role in cast("Mapping[str, str]", choice)}
    for role, calls in data.by_role():
        agents: set[str] = set()
        for call in calls:
            model = f"model {code(call.model)}" if call.model else "its own default model"
            agents.add(f"{code(call.provider or 'unknown')} with {model}")
        instructions = {code(call.file) if call.file else "built in" for call in calls}
        by_flag = "" if chosen & {"", role} else " (no flag named one)"
        names = ", ".join(sorted(agents))
        lines.append(
            f"Agent of the {cell(role)}: {names}{by_flag}; its instructions: {', '.join(sorted(instructions))}"
        )
    return lines


def cost_section(data: ReportData) -> str:
    """Return the cost of each role, and the total."""
    title = "## Cost and time by role"
    rows = [_row(role, calls) for role, calls in data.by_role()]
    if not rows:
        return paragraphs(title, "No turn of an agent has ended.")
    table = [
        "| role | calls | tokens read | tokens written | cost | time |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *rows,
        _row("all", data.calls),
    ]
    time = f"The run took {duration(data.spent.seconds)}, not counting time spent waiting for answers and for limits."
    return paragraphs(title, "\n".join(table), time, *_cost_notes(data))


def _row(role: str, calls: Sequence[CallRecord]) -> str:
    total = _total(calls)
    unpriced = _unpriced(calls)
    cost = "unknown"
    if unpriced < len(calls):
        cost = ("about " if _guessed(calls) else "") + dollars(total.usd) + (" and more" if unpriced else "")
    read = written = "unknown"
    if total.tokens > 0:  # every turn takes tokens: zero means that the agent reports none
        about = "about " if any(call.estimated for call in calls) else ""
        read = f"{about}{total.input_tokens:,}"
        written = f"{about}{total.output_tokens:,}"
    seconds = sum(call.seconds for call in calls)
    return f"| {cell(role)} | {len(calls)} | {read} | {written} | {cost} | {duration(seconds)} |"


def _total(calls: Sequence[CallRecord]) -> Amount:
    return sum((call.amount for call in calls), Amount())


def _unpriced(calls: Sequence[CallRecord]) -> int:
    """Count the calls without a price, not even an estimate."""
    return sum(call.usage.cost is None and not call.amount.usd for call in calls)


def _guessed(calls: Sequence[CallRecord]) -> int:
    """Count the calls that ended before their agents reported a price."""
    return sum(call.usage.cost is None and call.amount.usd > 0 for call in calls)


def _cost_notes(data: ReportData) -> list[str]:
    """Name the numbers that are unknown or estimated, and the tasks that needed several
    attempts.
    """
    calls = data.calls
    killed = sum(call.reason == KILLED for call in calls)
    were = "was" if killed == 1 else "were"
    counted = {
        "The price of {} is unknown: their agents do not report it.": _unpriced(calls),
        "The price of {} is an estimate: they were interrupted before their agents reported it.": _guessed(calls),
        f"{{}} {were} cut off when Atomic was killed: they count with what their agents had reported by then, else"
        " with an estimate. The real price may be higher.": killed,
        "The tokens of {} are an estimate from the characters that went in and came out: their agents report no"
        " numbers.": sum(call.estimated for call in calls),
    }
    notes = [text.format(f"{number} of {len(calls)} calls") for text, number in counted.items() if number]
    if data.spent.amount.tokens > _total(calls).tokens:
        notes.append(f"With turns that a kill has cut off it is {data.spent.amount.tokens:,} tokens in all.")
    repeated = [evidence for evidence in data.all_evidence if evidence.attempt > 1 and not data.is_yolo]
    if repeated:
        listed = ", ".join(f"{code(evidence.task)} ({evidence.attempt})" for evidence in repeated)
        notes.append(f"More than one attempt was needed for {listed}.")
    came_back = {} if data.state is None else data.state.came_back
    for task in data.tasks:
        if reasons := came_back.get(task.id):
            solved = "and was solved" if task.status.is_done else "and was not solved"
            why = "; then ".join(line(reason, MAX_REASON) for reason in reasons)
            notes.append(f"Task {code(task.id)} came back from its merge to the worker, {solved}: {why}.")
    return notes
