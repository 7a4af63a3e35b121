"""The report of a run, from session folders of every kind."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.base.usage import Usage
from atomic.git.snapshots import FolderSnapshot
from atomic.loading.project_check import CheckCommand
from atomic.ralph.evidence import CheckResult, Diffstat, Evidence, write_evidence
from atomic.ralph.options import Options
from atomic.ralph.report import at_end, report_of
from atomic.ralph.review import Finding, Review, fix_tasks
from atomic.ralph.state import RalphState, Span
from atomic.ralph.users_files import UsersFile, UsersFiles
from atomic.runs.endings import BLOCKED, CAPS
from atomic.runs.spending import Amount, CallRecord, amount_of, write_call
from atomic.sessions.model import SessionRecord
from atomic.tasks import Task, TaskList, TaskStatus
from atomic.workflows.definition import RunEnd
from tests.ralph.sandbox import facts_in
from tests.support.waits import HANG

ID = "0f9b2c1e-1111-4222-8333-444455556666"
START = "a" * 40
FIRST = "b" * 40
SECOND = "c" * 40
APPROVED = Review("approve")


class Run:
    """A session's folder, written by hand and with the real parts."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder / ID
        (self.folder / "logs").mkdir(parents=True)
        given: dict[str, Any] = {"mode": "plan", "goal": "build a game", **options}
        self.options = Options(**given)
        self.facts = facts_in(self.folder)
        self.spans: dict[str, list[Span]] = {}
        self.more: dict[str, Any] = {}
        self.calls = 0
        self.record()

    def record(self, **facts: Any) -> None:
        record = SessionRecord(id=ID, workflow="ralph", cwd="/project", **facts)
        (self.folder / "session.json").write_bytes(msgspec.json.encode(record))

    def gates(
        self, *gates: CheckCommand, baseline: Mapping[str, int] | None = None, passed: Sequence[str] = ()
    ) -> None:
        pages = {"gates": gates, "baseline": baseline or {gate.command: 0 for gate in gates}, "passed_once": passed}
        self.facts.set("gates.json", pages)

    def tasks(self, *tasks: Task) -> None:
        TaskList(tasks).write(self.folder / "tasks.json")

    def evidence(self, task: str, *gates: CheckResult, before: str | None = START, **facts: Any) -> None:
        words = {"commit": FIRST, "changed_files": (f"{task}.py",), "diffstat": Diffstat(1, 5, 2)}
        known: dict[str, Any] = {
            "attempt": 1,
            "status": "passed",
            "tree": "f" * 40,
            "protected_files": (),
            **words,
            **facts,
        }
        write_evidence(self.facts, Evidence(task=task, checks=gates, **known))
        self.spans[task] = [Span(FolderSnapshot(before, "e" * 40), FolderSnapshot(known["commit"], known["tree"]))]

    def call(self, role: str, **facts: Any) -> None:
        known: dict[str, Any] = {"provider": "claude", "model": "sonnet", "seconds": 12.0, "reason": "done", **facts}
        usage = msgspec.convert(known.pop("usage", None) or {}, Usage)
        self.calls += 1
        record = CallRecord(id=f"c{self.calls}", role=role, usage=usage, amount=amount_of(usage), **known)
        write_call(self.facts, record)

    def state(self, **facts: Any) -> RalphState:
        known: dict[str, Any] = {"start": FolderSnapshot(START, "e" * 40), "spans": self.spans, **self.more, **facts}
        return RalphState(options=self.options, **known)

    def end(self, status: str = "completed", reason: str = "done", message: str = "", **facts: Any) -> RunEnd:
        state = facts["state"] if "state" in facts else self.state(**facts)
        return RunEnd(
            session_dir=str(self.folder), status=status, reason=reason, message=message, state=state, save=self.save,
            facts=self.facts,
        )  # fmt: skip

    def save(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, "utf-8")

    @property
    def saved(self) -> str:
        return (self.folder / "report.md").read_text("utf-8")

    def report(self, *words: str, **facts: Any) -> str:
        return report_of(self.folder, self.end(*words, **facts))


def passed(command: str = "make test", **facts: Any) -> CheckResult:
    known: dict[str, Any] = {
        "exit_code": 0, "seconds": 1.5, "timed_out": False, "output_tail": "",
        "baseline_exit_code": 0, "blocking": True,
    }  # fmt: skip
    return CheckResult(command=command, output_sha256="0" * 64, **{**known, **facts})


def done(id: str, title: str = "", **facts: Any) -> Task:
    return Task(id, title or f"Do {id}", status=TaskStatus.COMPLETED, **facts)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.fixture
def finished(run: Run) -> Run:
    """Return a complete run: two tasks, a check and a review."""
    run.gates(CheckCommand("make test", "Makefile"))
    run.tasks(done("t1"), done("t2"))
    run.evidence("t1", passed())
    run.evidence("t2", passed(), before=FIRST, commit=SECOND)
    run.more = {"over": True, "reviews": [APPROVED]}
    return run


def said(end: RunEnd) -> str:
    """Return the message at the end of a run."""
    note = at_end(end)
    assert note is not None
    return note.message


def section(report: str, title: str) -> str:
    return report.partition(f"\n## {title}")[2].partition("\n## ")[0]


# Completed


def test_a_completed_run_names_its_proof(finished: Run) -> None:
    end = finished.end()
    assert said(end) == (
        f"2 of 2 tasks are done, verified by make test and reviewed; report: {finished.folder}/report.md"
    )
    report = finished.saved
    assert report.startswith("# Ralph completed: 2 of 2 tasks are done, verified by make test and reviewed\n")
    assert "reason `done`" in report
    assert "Not done" not in report
    assert "To continue" not in report


def test_each_done_task_has_its_evidence(finished: Run) -> None:
    told = section(finished.report(), "Done, with evidence")
    assert "### `t1` Do t1" in told
    assert "`make test` passed (exit code 0, 1.5s)" in told
    assert f"1 file, +5 −2: `t1.py`; commit `{FIRST}`" in told


def test_each_done_task_can_be_undone(finished: Run) -> None:
    told = section(finished.report(), "Commands to accept or undo")
    assert f"git show {SECOND}" in told
    assert f"git revert --no-edit {FIRST}..{SECOND}" in told
    assert f"git revert --no-edit {START}..{SECOND}" in told


@pytest.mark.parametrize(
    ("options", "gated", "known"),
    [
        ({"review_rounds": 0}, True, "verified by make test, not reviewed"),
        ({}, False, "not verified by a check, reviewed"),
        ({"review_rounds": 0}, False, "not verified by a check and not reviewed"),
    ],
)
def test_a_report_never_claims_a_check_or_review_that_did_not_happen(
    tmp_path: Path, options: Mapping[str, Any], gated: bool, known: str
) -> None:
    run = Run(tmp_path, **options)
    run.gates(*([CheckCommand("make test", "Makefile")] if gated else []))
    run.tasks(done("t1"))
    run.evidence("t1", *([passed()] if gated else []))
    end = run.end(over=True, reviews=[] if options else [APPROVED])
    assert said(end).startswith(f"1 of 1 task is done, {known}; report: ")
    assert ("**Not verified by a check.**" in run.saved) is not gated
    assert ("**not reviewed**" in run.saved) is bool(options)


def test_a_gate_that_was_red_before_and_stays_red_proves_nothing(run: Run) -> None:
    run.gates(CheckCommand("make test", "Makefile"), baseline={"make test": 2})
    run.tasks(done("t1"))
    run.evidence("t1", passed(exit_code=2, baseline_exit_code=2, blocking=False))
    end = run.end(over=True, reviews=[APPROVED])
    assert "not verified by a check, reviewed" in said(end)
    report = run.saved
    assert "**red before the run** (exit code 2): it has not passed since" in report
    assert "`make test` ended with exit code 2 (1.5s); it was red before the run" in report


def test_without_the_state_the_report_names_the_gaps(finished: Run) -> None:
    end = finished.end(state=None)
    assert "verified by make test; whether it was reviewed is not known" in said(end)
    report = finished.saved
    assert "The run's state is not known" in report
    assert "Not known" in section(report, "Findings")
    assert "Whether its work is in a commit is not known" in report


def test_the_state_may_come_as_plain_data(finished: Run) -> None:
    plain = msgspec.to_builtins(finished.state())
    assert finished.report(state=plain) == finished.report()


def test_a_completed_task_without_evidence_is_not_taken_for_proven(finished: Run) -> None:
    finished.tasks(done("t1"), done("t2"), done("t3"), done("t4"))
    finished.spans["t4"] = [Span(FolderSnapshot(START, "e" * 40), FolderSnapshot(START, "f" * 40))]
    report = finished.report()
    assert "4 of 4 tasks are done (1 of them before this run)" in report
    assert "this run did not verify it" in report.partition("### `t3`")[2].partition("###")[0]
    assert "**There is no evidence**" in report.partition("### `t4`")[2].partition("\n## ")[0]


def test_snapshots_are_kept_until_the_run_is_completed(finished: Run) -> None:
    pictures = finished.folder / "pictures"
    (pictures / "objects").mkdir(parents=True)
    assert at_end(finished.end("paused", "stopped", "stopped")) is None
    assert pictures.exists()
    at_end(finished.end())
    assert not pictures.exists()


def test_the_pull_request_is_named(finished: Run) -> None:
    finished.record(pr="https://forge.test/pull/7")
    assert "**Pull request**: `https://forge.test/pull/7`" in finished.report()


# Tests that were changed


def test_changed_tests_come_first(finished: Run) -> None:
    finished.evidence("t1", passed(), protected_files=("tests/test_game.py",))
    report = finished.report()
    loud = report.index("**Tests, checks or CI files were changed.**")
    assert loud < report.index("## Done")
    assert "> - `tests/test_game.py` (task `t1`)" in report
    assert "**Changed tests, checks or CI files**: `tests/test_game.py`" in section(report, "Done, with evidence")


def test_a_flaky_gate_is_named(finished: Run) -> None:
    finished.evidence("t1", passed(flaky=True))
    assert "**but only the second time: it is flaky**" in finished.report()


# Not completed


def test_each_task_that_is_left_has_its_reason(run: Run) -> None:
    run.gates(CheckCommand("make test", "--verify"))
    run.tasks(
        Task("t1", "First", status=TaskStatus.FAILED),
        Task("t2", "Second", blocked_by=["t1"]),
        Task("t3", "Third", status=TaskStatus.BLOCKED),
        Task("t4", "Fourth"),
        Task("t5", "Fifth", status=TaskStatus.IN_PROGRESS),
    )
    red = passed(exit_code=1, output_tail="E assert 1 == 2\n")
    run.evidence("t1", red, status="failed", reason="make test ended with exit code 1", attempt=3)
    report = run.report("blocked", "nothing_runnable", "4 of 5 tasks are left")
    assert report.startswith("# Ralph is blocked: 0 of 5 tasks are done\n")
    assert "Nothing." in section(report, "Done, with evidence")
    left = section(report, "Not done, and why")
    assert "- failed: make test ended with exit code 1 (after 3 attempts)" in left
    assert "```text\nE assert 1 == 2\n```" in left
    assert '- not done: "t1" failed' in left
    assert "- blocked: marked as blocked" in left
    assert "### `t4` Fourth\n\n- not done: ready, not begun" in left
    assert "### `t5` Fifth\n\n- not done: begun, not finished" in left
    assert "failed tasks get three more attempts" in report


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("paused", "question"),
        *(("blocked", reason) for reason in BLOCKED),
        *(("paused", reason) for reason in CAPS),
        ("paused", "provider_limit"),
        ("paused", "stopped"),
        ("cancelled", "cancelled"),
        ("failed", "error"),
        ("failed", "no_plan"),
    ],
)
def test_every_ending_has_a_reason_and_a_way_to_continue(finished: Run, status: str, reason: str) -> None:
    end = finished.end(status, reason, "this is what happened")
    assert at_end(end) is None
    report = finished.saved
    assert f"- **Status**: `{status}`, reason `{reason}`" in report
    assert "- **Why**: this is what happened" in report
    way = next(line for line in report.splitlines() if line.startswith("- **To continue**: "))
    assert (f"`atomic resume {ID}" in way) is (status != "cancelled")  # that one is over for good
    assert "{" not in way
    assert "completed" not in report.splitlines()[0]
    assert "verified" not in report.splitlines()[0]
    if reason in CAPS:
        assert f"--{reason.replace('_', '-')}" in way


def test_a_run_without_a_plan_claims_nothing(run: Run) -> None:
    report = run.report("failed", "no_plan", "the planner gave no usable plan twice")
    assert report.startswith("# Ralph failed: there are no tasks, so nothing was done\n")
    assert "No turn of an agent has ended" in report
    assert "**not reviewed**: the run ended before the review" in report


# Findings


def test_open_findings_have_their_location_and_their_repair(finished: Run) -> None:
    bad = Finding("Loses the score", "It is never saved.", 1, "game.py:7")
    [repair] = fix_tasks([bad], 1)
    finished.tasks(done("t1"), done("t2"), msgspec.structs.replace(repair, status=TaskStatus.COMPLETED))
    small = Finding("Typo", "", 3)
    review = Review("request_changes", (bad, small))
    report = finished.report("blocked", "same_blocker", "again", over=False, reviews=[review], rounds=[[bad]])
    found = section(report, "Findings")
    assert "**P1** at `game.py:7`: Loses the score: It is never saved. (its repair `fix-1-1` is done, but no" in found
    assert "### Only reported (P3), of all rounds\n\n- **P3**: Typo" in found
    assert "2 of 2 tasks and 1 of 1 repair are done" in report
    assert "Review: **not approved**" in report


def test_repaired_findings_are_not_open(finished: Run) -> None:
    bad = Finding("Loses the score", "", None)
    report = finished.report(rounds=[[bad]], reviews=[Review(findings=(bad,)), APPROVED])
    assert "None is open." in section(report, "Findings")


def test_an_unreadable_review_is_named(finished: Run) -> None:
    silent = Review(problem="no readable review, twice: the answer has no JSON in it")
    report = finished.report("blocked", "not_approved", "x", over=False, reviews=[silent], rounds=[[]])
    assert "- Not approved: no readable review, twice" in section(report, "Findings")


# Choices and cost


def test_choices_of_atomic_are_reported(finished: Run) -> None:
    finished.record(options={"agents": {"reviewer": "copilot"}, "models": {}})
    finished.call("worker", model=None)
    finished.call("reviewer", provider="copilot", model="gpt", file="/project/.claude/agents/reviewer.md")
    told = section(finished.report(), "Choices, and who made them")
    assert "Check: `make test` (found in `Makefile` by Atomic, none was given); green before the run" in told
    assert (
        "Agent of the worker: `claude` with its own default model (no flag named one); its instructions: built in\n"
        in told
    )
    assert "with model `gpt`; its instructions: `/project/.claude/agents/reviewer.md`\n" in f"{told}\n"
    assert "`gpt` (chosen" not in told
    assert "Review: approved" in told


def test_cost_is_listed_by_role_and_unknown_is_not_zero(finished: Run) -> None:
    finished.call("reviewer", usage={"input": 10, "output": 5, "cost": None})
    finished.call("worker", usage={"input": 1000, "output": 200, "cost": 0.25})
    finished.call("worker", usage={"input": 1000, "output": 100, "cost": None})
    told = section(finished.report(), "Cost and time by role")
    assert "| worker | 2 | 2,000 | 300 | $0.25 and more | 24s |" in told
    assert "| reviewer | 1 | 10 | 5 | unknown | 12s |" in told
    assert told.index("| worker") < told.index("| reviewer")
    assert "The price of 2 of 3 calls is unknown" in told
    assert "$0.00" not in told


def test_a_call_without_figures_is_not_free(finished: Run) -> None:
    finished.call("worker", usage=None)
    finished.call("worker", usage={"input": 0, "output": 0, "cost": None})
    assert "| worker | 2 | unknown | unknown | unknown | 24s |" in finished.report()


# Uncommitted work


def test_uncommitted_work_can_be_stashed_without_losing_it(run: Run) -> None:
    run.tasks(done("t1"))
    run.evidence("t1", commit=START, changed_files=("a b.py", "new.py"))
    report = run.report(over=True, reviews=[APPROVED])
    assert f"not committed (HEAD is `{START}`)" in report
    told = section(report, "Commands to accept or undo")
    assert "git diff HEAD -- 'a b.py' new.py" in told
    assert "git stash push --include-untracked" in told
    assert "checkout" not in told
    assert "revert" not in told  # there is no commit that it could undo


def test_outside_git_the_files_are_listed(run: Run) -> None:
    run.tasks(done("t1"))
    run.evidence("t1", before=None, commit=None)
    told = section(run.report(over=True, start=FolderSnapshot(None, "e" * 40)), "Commands to accept or undo")
    assert "in no git repository" in told
    assert "- `t1`: `t1.py`" in told
    assert "git revert" not in told


def test_the_commands_of_the_report_work(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a real repository: two tasks with commits, one without, in files with names that a shell could mistake."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")

    def sh(command: str) -> str:
        names = ("-c", "user.name=A", "-c", "user.email=a@example.test")
        words = ["bash", "-ec", f'git() {{ command git {" ".join(names)} "$@"; }}; {command}']
        done = subprocess.run(words, cwd=project, check=True, capture_output=True, text=True, timeout=HANG)
        return done.stdout.strip()

    heads = [sh("git init -q -b main; git commit -q --allow-empty -m Begin; git rev-parse HEAD")]
    for name in ("t1", "t2"):
        heads.append(sh(f"touch {name}.py; git add {name}.py; git commit -q -m {name}; git rev-parse HEAD"))
        run.evidence(name, before=heads[-2], commit=heads[-1])
    odd = ["a 'b'.py", "[ab].py", "--all", "x\x1b[2J\ny.py", "$(touch ran)"]
    for name in odd:
        (project / name).write_text("new")
    run.evidence("t3", before=heads[-1], commit=heads[-1], changed_files=tuple(odd))
    run.tasks(done("t1"), done("t2"), done("t3"))
    commands = section(run.report(start=FolderSnapshot(heads[0], "e" * 40)), "Commands to accept or undo").splitlines()

    assert len(sh(next(line for line in commands if line.startswith("git status"))).splitlines()) == len(odd)
    sh(next(line for line in commands if line.startswith("git stash")))
    assert sorted(path.name for path in project.iterdir()) == [".git", "t1.py", "t2.py"]
    sh("git stash pop")
    assert {path.name for path in project.iterdir()} == {".git", "t1.py", "t2.py", *odd}
    first, second, everything = (line for line in commands if line.startswith("git revert"))
    sh(second)
    assert {path.name for path in project.glob("t*.py")} == {"t1.py"}
    sh(first)
    assert {path.name for path in project.glob("t*.py")} == set()
    sh(f"git reset -q --hard {heads[-1]}")
    sh(everything)
    assert sh("git ls-files") == ""


# Several workers


def shared_run(folder: Path, *, turned: bool) -> Run:
    """Return a run of two workers; the one that ended last saw the files of both."""
    run = Run(folder, workers=2)
    run.gates(CheckCommand("make test", "Makefile"))
    run.tasks(done("t1"), done("t2"))
    both, first, last = ("t1.py", "t2.py"), *(("t2", "t1") if turned else ("t1", "t2"))
    run.evidence(last, passed(seconds=1.5), changed_files=both, commit=SECOND, diffstat=Diffstat(2, 9, 9))
    run.evidence(first, passed(seconds=1.5), changed_files=(f"{first}.py",), commit=FIRST)
    for role in ("worker", "planner") if turned else ("planner", "worker"):
        run.call(role, usage={"input": 1, "output": 1, "cost": 0.5})
    run.more = {"over": True, "reviews": [APPROVED]}
    return run


def test_which_task_ended_first_does_not_change_the_report(tmp_path: Path) -> None:
    one, other = (shared_run(tmp_path / name, turned=name == "b").report() for name in "ab")
    assert one == other
    assert "2 workers shared one checkout" in one
    assert "All changed files: `t1.py`, `t2.py`" in one
    assert "their commits cannot be assigned to tasks" in section(one, "Commands to accept or undo")
    assert FIRST not in one


# Yolo and dry run


def test_yolo_rests_on_the_promise_and_its_gates(tmp_path: Path) -> None:
    run = Run(tmp_path, mode="yolo")
    run.gates(CheckCommand("make test", "Makefile"))
    run.evidence("yolo", passed())
    end = run.end(over=True, iteration=4)
    assert said(end).startswith("the promise was kept after 4 turns, verified by make test, not reviewed; ")
    report = run.saved
    assert f"git revert --no-edit {START}..{FIRST}" in report
    assert "as with every `--yolo`" in report


def test_yolo_without_a_kept_promise_claims_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, mode="yolo")
    stuck = run.report("blocked", "stuck", "3 turns changed no file and kept no promise", iteration=3)
    assert stuck.startswith("# Ralph is blocked: the promise is not kept after 3 turns\n")
    assert "has not given its promise" in stuck
    run.evidence("yolo", passed(exit_code=1), status="failed", reason="the promise does not hold: make test is red")
    assert "the promise does not hold: make test is red" in section(
        run.report("paused", "stopped"), "Not done, and why"
    )


def test_a_dry_run_shows_what_would_be_done_and_claims_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, dry_run=True, gates=(CheckCommand("make check", "--verify"),), workers=3)
    given = {"verify": ["make check"], "workers": 3}
    run.record(config={"max_iterations": 7, **given}, options={"caps": {"max_cost": 5.0}, "given": sorted(given)})
    run.gates(CheckCommand("make check", "--verify"), baseline={"x": 0})
    run.tasks(Task("t1", "First", acceptance=["it runs"]), Task("t2", "Second", blocked_by=["t1"]))
    end = run.end()
    assert said(end).startswith("dry run: 2 tasks planned, nothing was done; report: ")
    report = run.saved
    command = f"atomic run ralph --max-cost 5 --workers 3 --verify 'make check' --tasks {run.folder}/tasks.json"
    assert command in report
    assert "- must hold: it runs" in report
    assert "it has not been run" in section(report, "Checks")
    assert "at most 7 turns" in section(report, "Limits")
    assert "`--max-cost`: 5.0" in section(report, "Limits")
    assert "step 1: t1\nstep 2: t2 (after t1)" in section(report, "Graph")
    assert report.startswith("# Ralph: dry run: 2 tasks planned, nothing was done\n")
    assert "## Done" not in report
    assert "verified" not in report


def test_a_dry_run_without_tasks_is_reported(tmp_path: Path) -> None:
    run = Run(tmp_path, dry_run=True)
    report = run.report("blocked", "stuck", "the planner has listed no task")
    assert section(report, "Tasks").strip() == "No tasks were planned."


# Hostile words

HOSTILE = [
    "line\n# Ralph completed: all is done\n",
    "``` \n## Done, with evidence",
    "\x1b[2J\x1b[31mred\x1b]0;title\x07",
    "<script>alert(1)</script> <!-- ",
    "**bold** [x](http://evil.test) ![i](y)",
    "`` ` ``",
    "\u202egnp.exe",
    "- [ ] a\r\n| b | c |\n| --- | --- |",
    "closes #1 @everyone",
]


@pytest.mark.parametrize("words", HOSTILE)
def test_foreign_text_breaks_neither_markdown_nor_terminal(run: Run, words: str) -> None:
    run.options = msgspec.structs.replace(run.options, goal=words)
    run.gates(CheckCommand("make test", "--verify"))
    run.tasks(done("t1", words), Task("t2", words, status=TaskStatus.FAILED))
    red = passed(exit_code=1, output_tail=words)
    run.evidence("t1", passed(), changed_files=(words,), protected_files=(words,), commit=START)
    run.evidence("t2", red, status="failed", reason=words, changed_files=(words,))
    run.call(words, model=words, provider=words)
    finding = Finding(words, words, 1, words)
    report = run.report("blocked", "review_rounds", words, reviews=[Review(findings=(finding,))], rounds=[[finding]])
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", report)
    outside = _outside_of_fences(report)
    headings = [line for line in outside if re.match(r"#{1,2} ", line)]
    assert [line.split()[1] for line in headings] == [
        "Ralph", "Done,", "Not", "Findings", "Choices,", "Cost", "Commands",
    ]  # fmt: skip
    assert "<script" not in _without_code("\n".join(outside)).replace("\\<", "")
    assert "@everyone" not in _without_code("\n".join(outside))
    assert "](http" not in _without_code("\n".join(outside))


def _outside_of_fences(report: str) -> list[str]:
    lines = list[str]()
    fence = ""
    for line in report.splitlines():
        mark = re.match(r"(`{3,})(\w*)$", line.strip())
        if not fence and mark:
            fence = mark[1]
        elif fence and mark and len(mark[1]) >= len(fence) and not mark[2]:
            fence = ""
        elif not fence:
            lines.append(line)
    assert not fence, "a fence is not closed"
    return lines


def _without_code(text: str) -> str:
    return re.sub(r"(?<!`)(`+)(?!`)[^\n]*?(?<!`)\1(?!`)", "", text.replace("\\`", ""))


def test_a_file_of_the_user_that_changes_after_the_last_turn_is_named_and_its_copy_stays(tmp_path: Path) -> None:
    run = Run(tmp_path)
    project = tmp_path / "project"
    project.mkdir()
    copies = run.folder / "snapshots" / "users-files"
    copies.mkdir(parents=True)
    (copies / "copy").write_text("mine\n")
    run.facts.set("users_files.json", UsersFiles(str(project), {"draft.md": UsersFile("copy")}))
    end = RunEnd(
        session_dir=str(run.folder), status="completed", reason="done", message="", save=run.save, facts=run.facts
    )
    note = at_end(end)
    assert note is not None
    assert "changed after the last turn: `draft.md`" in (run.folder / "report.md").read_text().partition("\n")[0]
    assert f"`atomic salvage {ID} draft.md`" in (run.folder / "report.md").read_text()
    assert (copies / "copy").exists()


def test_the_price_of_an_interrupted_call_is_called_an_estimate(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.tasks(done("1"))
    run.evidence("1", passed())
    run.call("worker", usage={"input": 1000, "output": 100, "cost": 0.5})
    usage = Usage(2000, 50)
    amount = Amount(0.02, 2000, 50)
    cut = CallRecord(id="x", role="worker", provider="claude", reason="interrupted", usage=usage, amount=amount)
    write_call(run.facts, cut)
    report = run.report()
    assert "| worker | 2 | 3,000 | 150 | about $0.52 |" in report
    assert "The price of 1 of 2 calls is an estimate: they were interrupted before their agents reported it." in report
    assert "is unknown" not in report
