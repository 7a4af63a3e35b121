"""The part of a report about the work: what is done and how that is known, what is not and why, what was found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from atomic.sessions.report import duration
from atomic.tasks import Task, TaskStatus
from atomic.workflows.ralph.account import Account, is_failed
from atomic.workflows.ralph.checking import is_repair
from atomic.workflows.ralph.evidence import Evidence, GateResult
from atomic.workflows.ralph.gates import readable
from atomic.workflows.ralph.markdown import code, line
from atomic.workflows.ralph.prompts import quoted, role_of
from atomic.workflows.ralph.review import Finding
from atomic.workflows.ralph.yolo import TASK as YOLO

MOST_FILES = 20  # that are named; more than that nobody reads
MOST_OUTPUT = 1500  # characters of what a red gate said
MOST_WORDS = 600  # characters of a reason or a finding


# done ----------------------------------------------------------------------------------------------------------------


def done_section(account: Account) -> str:
    """What is done, each with its evidence."""
    parts = _yolo_done(account) if account.is_yolo else [_done(account, task) for task in account.done]
    if not parts:
        return "## Done, with evidence\n\nNothing."
    shared = (
        f"{account.options.workers} workers shared one checkout: what changed cannot be told apart by task. "
        f"All that changed: {_files(sorted({path for proof in account.proofs for path in proof.changed_files}))}."
    )
    return "\n\n".join(["## Done, with evidence", *([shared] if account.is_shared and account.proofs else []), *parts])


def _done(account: Account, task: Task) -> str:
    return f"### {code(task.id)} {line(task.title)}\n\n" + "\n".join(f"- {fact}" for fact in _facts(account, task))


def _facts(account: Account, task: Task) -> list[str]:
    proof = account.evidence.get(task.id)
    if task.status is TaskStatus.SKIPPED:
        return ["Skipped, as its list says: nothing was done or verified."]
    if proof is None:
        if account.worked_on(task):
            return ["**There is no evidence** of it in the session's folder."]
        return ["It was completed in the list that this run was given; nobody has verified it here."]
    if proof.status != "passed":
        return [f"**Its evidence does not say that it is done**: {line(proof.reason, MOST_WORDS)}"]
    return _proof_facts(account, proof)


def _yolo_done(account: Account) -> list[str]:
    return ["\n".join(f"- {fact}" for fact in _proof_facts(account, proof)) for proof in account.proofs]


def _proof_facts(account: Account, proof: Evidence) -> list[str]:
    facts = [_gate(gate) for gate in proof.gates] or ["**Not verified by a check.**"]
    if not any(gate.blocking and gate.exit_code == 0 for gate in proof.gates) and proof.gates:
        facts.append("**Not verified by a check**: none that was green before the run, or since, has passed.")
    return facts if account.is_shared else [*facts, *_change_facts(account, proof)]


def _gate(gate: GateResult) -> str:
    """One gate, in words."""
    took = duration(gate.seconds)
    if gate.exit_code == 0:
        flaky = ", **but only the second time: it is flaky**" if gate.flaky else ""
        return f"{code(gate.command)} passed (exit code 0, {took}){flaky}"
    how = "took too long and was ended" if gate.timed_out else f"ended with exit code {gate.exit_code}"
    advisory = "" if gate.blocking else f"; it {_never_green(gate)}, so it does not hold up a task"
    return f"{code(gate.command)} {how} ({took}){advisory}"


def _never_green(gate: GateResult) -> str:
    return "had not passed yet" if gate.baseline_exit_code is None else "was red before the run"


def _change_facts(account: Account, proof: Evidence) -> list[str]:
    stat = proof.diffstat
    where = _where(account, proof)
    if not proof.changed_files:
        return [f"No file changed; {where}"]
    size = f"{stat.files} file{'' if stat.files == 1 else 's'}, +{stat.insertions} −{stat.deletions}"
    facts = [f"{size}: {_files(proof.changed_files)}; {where}"]
    if proof.protected_files:
        facts.append(f"**Changed tests, checks or CI files**: {_files(proof.protected_files)}")
    return facts


def _where(account: Account, proof: Evidence) -> str:
    if proof.commit is None:
        return "in no commit"
    spans = account.spans(proof)
    if not spans:
        return f"HEAD was {code(proof.commit)}"
    made = [span.after.head for span in spans if span.after.head != span.before.head]
    if not made:
        return f"not committed (HEAD is {code(proof.commit)})"
    rest = f", but **not committed**: {_files(proof.uncommitted)}" if proof.uncommitted else ""
    return f"commit {code(str(made[-1]))}{rest}"


def _files(paths: Sequence[str]) -> str:
    shown = ", ".join(code(path) for path in paths[:MOST_FILES])
    return shown if len(paths) <= MOST_FILES else f"{shown} and {len(paths) - MOST_FILES} more"


# not done ------------------------------------------------------------------------------------------------------------


def left_section(account: Account) -> str:
    """What is not done, each with its reason."""
    if account.is_yolo:
        parts = _yolo_left(account)
    else:
        waiting = account.task_list.waiting()
        parts = [_left(account, task, waiting.get(task.id)) for task in account.left]
    return "\n\n".join(["## Not done, and why", *parts]) if parts else ""


def _left(account: Account, task: Task, waiting: str | None) -> str:
    proof = account.evidence.get(task.id)
    state = "failed" if is_failed(task) else "blocked" if task.status is TaskStatus.BLOCKED else "not done"
    why = waiting or _why(account, task, proof)
    facts = [f"{state}: {line(why, MOST_WORDS)}", *_claims(account, task)]
    parts = [f"### {code(task.id)} {line(task.title)}\n\n" + "\n".join(f"- {fact}" for fact in facts)]
    if proof is not None and proof.status == "failed":
        red = _red(account, proof.gates)
        # Where no file changed the checks did not run again: what they said first is in the task.
        parts += red or ([task.description] if is_repair(task) else [])
    return "\n\n".join(parts)


def _claims(account: Account, task: Task) -> list[str]:
    """What agents said at the end of attempts that failed; the same words once."""
    tries = [] if account.state is None else account.state.tries.get(task.id, [])
    words = dict.fromkeys(one.said for one in tries if one.said)
    return [f"the {role_of(task)} said, unproven: {line(said, MOST_WORDS)}" for said in words]


def _why(account: Account, task: Task, proof: Evidence | None) -> str:
    reason = "" if proof is None or proof.status == "passed" else _tried(proof)
    if is_failed(task):
        return reason or "no attempt left evidence"
    if task.status is TaskStatus.IN_PROGRESS or account.worked_on(task):
        return f"begun, not finished{f'; so far: {reason}' if reason else ''}"
    return "ready, not begun when the run ended"


def _tried(proof: Evidence) -> str:
    attempts = "one attempt" if proof.attempt == 1 else f"{proof.attempt} attempts"
    return f"{proof.reason or 'no reason is known'} (after {attempts})"


def _red(account: Account, gates: Iterable[GateResult]) -> list[str]:
    failed = [gate for gate in gates if gate.exit_code != 0]
    red = [gate for gate in failed if gate.blocking or account.book.must_pass(gate.command)]
    return [f"{_gate(gate)}. The end of what it said:\n\n{_output(gate.output_tail)}" for gate in red]


def _output(text: str) -> str:
    return quoted(readable(text.encode("utf-8", "replace")), most=MOST_OUTPUT) if text.strip() else "(nothing)"


def _yolo_left(account: Account) -> list[str]:
    proof = account.evidence.get(YOLO)
    if proof is not None and proof.status == "passed":
        return []
    said = "" if account.state is None else account.state.said.get(YOLO, "")
    claim = f"\n- the worker said, unproven: {line(said, MOST_WORDS)}" if said else ""
    if proof is None:
        return [f"- The agent has not given its promise.{claim}"]
    return [f"- {line(proof.reason, MOST_WORDS)}{claim}", *_red(account, proof.gates)]


# findings ------------------------------------------------------------------------------------------------------------


def findings_section(account: Account) -> str:
    """What reviewers found: what still blocks, and what is only reported."""
    state = account.state
    if account.is_yolo or (state is not None and not state.reviews):
        return ""
    if state is None:
        return "## Findings\n\nNot known: the run's state could not be read."
    open_ones = [] if state.over else (state.rounds[-1] if state.rounds else [])
    parts = [f"### Open, they block\n\n{_listed(account, open_ones)}"] if open_ones else []
    parts += _unreadable(account)
    if reported := _reported(account):
        parts.append(f"### Only reported (P3), of all rounds\n\n{_listed(account, reported)}")
    said = "None is open." if state.over else "None blocks so far."
    return "\n\n".join(["## Findings", *(parts or [said])])


def _listed(account: Account, findings: Iterable[Finding]) -> str:
    return "\n".join(f"- {_finding(account, one)}" for one in findings)


def _finding(account: Account, finding: Finding) -> str:
    urgent = "without priority" if finding.priority is None else f"P{finding.priority}"
    where = f" at {code(finding.location)}" if finding.location else ""
    body = f": {line(finding.body, MOST_WORDS)}" if finding.body.strip() else ""
    return f"**{urgent}**{where}: {line(finding.title)}{body}{_repair(account, finding)}"


def _repair(account: Account, finding: Finding) -> str:
    """How far its repair is, where there is one."""
    for task in reversed(account.tasks):
        if finding.blocks and task.title == finding.title and task.metadata.get("role") == "fixer":
            done = "is done, but no review has seen it" if task.status.is_done else "is not done"
            return f" (its repair {code(task.id)} {done})"
    return ""


def _reported(account: Account) -> list[Finding]:
    reviews = [] if account.state is None else account.state.reviews
    found = {finding.key: finding for review in reviews for finding in review.findings if not finding.blocks}
    return list(found.values())


def _unreadable(account: Account) -> list[str]:
    """Reviews of the last round that approve nothing and name nothing that blocks."""
    state = account.state
    if state is None or state.over:
        return []
    last = [review for review in state.reviews[-account.options.reviewers :] if not review.approved]
    silent = [review for review in last if not review.blockers]
    return [
        f"- Not approved: {line(review.problem or review.summary or 'no reason is given', MOST_WORDS)}"
        for review in silent
    ]
