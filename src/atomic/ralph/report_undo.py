"""The section of a report with the commands that show, accept or undo the changes of a
run.
"""

from __future__ import annotations

from collections.abc import Sequence

from atomic.ralph.evidence import Evidence
from atomic.ralph.markdown import bullets, code, codes, line, paragraphs, plain, shell, word
from atomic.ralph.merge_run import find_request
from atomic.ralph.report_data import ReportData
from atomic.ralph.report_sections import MAX_FILES
from atomic.ralph.state import Span
from atomic.tasks import TaskStatus
from atomic.workspaces import RunBranch

_BETWEEN = 5  # spaces between a command and its remark
_TITLE = "## Commands to accept or undo"
_INTRODUCTION = "In the root of the repository. None of these commands has been run: keep the work by doing nothing."


def undo_section(data: ReportData) -> str:
    """Return the commands for each task, or for the whole run if commits cannot be
    assigned to tasks.
    """
    if data.branch is not None:
        return _branch(data, data.branch)
    if not data.all_evidence:
        return paragraphs(_TITLE, f"No task left a change; {code('git status')} shows the current state.")
    if all(evidence.commit is None for evidence in data.all_evidence):
        return _outside_git(data)
    if data.is_shared:
        shared = f"{data.options.workers} workers shared one checkout: their commits cannot be assigned to tasks."
        return paragraphs(_TITLE, f"{_INTRODUCTION} {shared}", _whole_run(data))
    order = "A later task may build on an earlier one: undo the latest first."
    tasks = [_task(data, evidence) for evidence in data.all_evidence]
    return paragraphs(_TITLE, f"{_INTRODUCTION} {order}", *tasks, "" if data.is_yolo else _whole_run(data))


def branch_commands(data: ReportData, branch: RunBranch) -> list[str]:
    """Return the lines about a run's branch that end its message: the result of
    `--accept`, and commands in a column, each with a remark.
    """
    lines = _in_columns(_commands_of_branch(data, branch))
    result = branch.accept_result
    if result is not None and result.problem:
        lines.insert(0, f"not merged: {plain(result.problem, 1000)}")
    elif result is not None:
        lines.insert(0, f"merged into {plain(result.target)}, which is at {result.commit[:12]}")
    return lines


def unfinished_commands(data: ReportData) -> list[str]:
    """Return the commands for the work of a run that has not completed.

    Empty if nothing is finished and nothing is parked.
    """
    branch = data.branch
    if branch is None or find_request(data.record.config) is not None:
        return []
    commands = _commands_of_branch(data, branch) if branch.landed else []
    for task in data.open:
        if task.status is TaskStatus.FAILED and data.worked_on(task):
            commands.append((f"atomic salvage {data.id[:8]} {word(task.id)}", f"the work of task {plain(task.id)}"))
    return _in_columns(commands)


def _in_columns(commands: Sequence[tuple[str, str]]) -> list[str]:
    """Return commands in a column, each with a remark: a pasted line works."""
    width = max((len(command) for command, _ in commands), default=0) + _BETWEEN
    return [f"{command:{width}}# {remark}" for command, remark in commands]


def _commands_of_branch(data: ReportData, branch: RunBranch) -> list[tuple[str, str]]:
    id = data.id[:8]
    result = branch.accept_result
    is_merged = result is not None and not result.problem
    target = branch.upstream or branch.start[:12]
    if data.is_branch_gone:
        back = (f"git branch {branch.name} {branch.tip[:12]}", "bring the branch back, which is gone")
        return [back] if branch.landed and not is_merged else []
    since = branch.start[:12] if is_merged else target  # the user's branch has the work already
    commands = [(f"git diff {word(since)}...{branch.name}", "what changed")] if branch.landed else []
    request = find_request(data.record.config)
    if request is not None:
        return [*commands, (f"atomic accept {request.run[:8]}", f"merge it into {plain(request.target)}")]
    if branch.landed and not is_merged:
        last = branch.landed[-1].task
        if branch.upstream:
            commands.append((f"atomic accept {id}", f"merge it into {plain(target)}"))
        else:  # accept needs a branch to merge into
            commands.append((f"git merge {branch.name}", "merge it into your checkout, which was on no branch"))
        commands.append((f"atomic undo {id} {word(last)}", f"take task {plain(last)} back out"))
    return commands


def _branch(data: ReportData, branch: RunBranch) -> str:
    commands = _commands_of_branch(data, branch)
    result = branch.accept_result
    if not branch.landed and result is None:
        return paragraphs(_TITLE, "Your checkout is as it was, and nothing was merged into the branch.", *_parked(data))
    text = f"Your checkout is as it was. The work is on the branch {code(branch.name)}."
    if data.is_branch_gone:
        text = f"Your checkout is as it was. The branch {code(branch.name)} with the work is **gone**."
    if result is not None and result.problem:
        text += f" {code('--accept')} did not merge it: {line(result.problem, 1000)}"
    elif result is not None:
        text = (
            f"The branch {code(branch.name)} was merged into {code(result.target)}, which was moved from "
            f"{code(branch.start[:12])} to {code(result.commit[:12])}."
        )
    if not data.is_branch_gone and (result is None or result.problem):
        commands.append((f"atomic discard {data.id[:8]}", "delete the branch; the work stays restorable"))
    width = max((len(command) for command, _ in commands), default=0) + 2
    parts = [_TITLE, text, shell(*(f"{command:{width}}# {remark}" for command, remark in commands))]
    return paragraphs(*parts, *_parked(data))


def _parked(data: ReportData) -> list[str]:
    lost = [task for task in data.open if data.worked_on(task)]
    if not lost:
        return []
    commands = shell(*(f"atomic salvage {data.id[:8]} {word(task.id)}" for task in lost))
    return ["Work of tasks that are not done is parked:", commands]


def _task(data: ReportData, evidence: Evidence) -> str:
    heading = "### The whole run"
    if not data.is_yolo:
        title = next(line(task.title) for task in data.tasks if task.id == evidence.task)
        failed = " (not done)" if evidence.status == "failed" else ""
        heading = f"### {code(evidence.task)} {title}{failed}"
    return paragraphs(heading, _commands(data, evidence))


def _commands(data: ReportData, evidence: Evidence) -> str:
    spans = data.spans(evidence)
    if not spans:
        commit = str(evidence.commit)
        return paragraphs(
            f"Whether its work is in a commit is not known. When it ended, HEAD was {code(commit)}:",
            shell(f"git show {word(commit)}", _status(evidence.changed_files)),
        )
    made = [span for span in spans if span.after.head != span.before.head]
    if not made:
        return _uncommitted(data, evidence, evidence.changed_files) if evidence.changed_files else "It changed nothing."
    rest = ""
    if evidence.uncommitted:
        rest = paragraphs(_uncommitted(data, evidence, evidence.uncommitted), "Its commits:")
    last = word(str(made[-1].after.head))
    if made[0].before.head is None:
        return paragraphs(rest, "It made the first commits of the repository:", shell(f"git log --stat {last}"))
    # The user may have committed something between two turns.
    ranges = [f"{word(str(span.before.head))}..{word(str(span.after.head))}" for span in reversed(made)]
    commands = shell(
        *(f"git log --oneline {commits}  # its commits" for commits in ranges),
        f"git show {last}  # the last of them",
        *(_undo(data, commits) for commits in ranges),
    )
    return paragraphs(rest, commands)


def _undo(data: ReportData, commits: str) -> str:
    """Return the command that undoes commits and does not touch the user's uncommitted
    files.
    """
    users = data.users
    taken = [path for path, trouble in users.troubles.items() if trouble.kind == "committed"]
    taken = [path for path in taken if not users.files[path].submodule]
    taken += users.committed
    # A revert deletes a file that a commit has taken along, and refuses to work while
    # something is staged.
    if not taken and not any(file.is_staged for file in users.files.values()):
        return f"git revert --no-edit {commits}  # undo them, newest first"
    excluded = " ".join(word(f":(top,literal,exclude){path}") for path in taken)
    files = f"-- . {excluded}".rstrip()
    return f"git diff --binary {commits} {files} | git apply --reverse  # undo them in the files, then commit"


def _uncommitted(data: ReportData, evidence: Evidence, paths: Sequence[str]) -> str:
    paths = [path for path in paths if path not in data.users.files]
    if not paths:
        return "It changed nothing but uncommitted files of yours: see above."
    commands = [_status(paths)]
    if files := _words(paths):
        name = f"atomic {data.id[:8]}"
        if evidence.task.isalnum():
            name += f" {evidence.task}"
        commands += [
            f"git diff HEAD -- {files}  # look",
            f"git add -- {files} && git commit  # accept",
            f'git stash push --include-untracked -m "{name}" -- {files}  # undo',
        ]
    else:
        commands.append("git diff HEAD  # look")
    return paragraphs(
        f"{'This' if evidence.uncommitted else 'It'} was in no commit when the task ended. The stash also takes other "
        "uncommitted changes in these files; `git stash pop` brings them back.",
        shell(*commands),
    )


def _status(paths: Sequence[str]) -> str:
    files = _words(paths)
    return f"git status --short -- {files}" if files else "git status --short"


def _words(paths: Sequence[str]) -> str:
    """Return the files as words for a shell.

    Empty where they are too many for one line.
    """
    return " ".join(word(path) for path in paths) if len(paths) <= MAX_FILES else ""


def _whole_run(data: ReportData) -> str:
    title = "### All of it"
    start = None if data.state is None else data.state.start
    if start is None:
        return paragraphs(title, "Where the run began is not known: `git log` shows the commits.")
    if start.head is None:
        return paragraphs(title, f"The repository had no commit before the run: {code('git log --stat')}")
    since = word(start.head)
    commands = [f"git diff {since}  # all changes since the start, except new uncommitted files"]
    if any(evidence.commit != start.head for evidence in data.all_evidence):
        commands.insert(0, f"git log --oneline {since}..HEAD  # all commits since the start, yours too")
        commands += _undo_whole_run(data)
    return paragraphs(title, shell(*commands))


def _undo_whole_run(data: ReportData) -> list[str]:
    """Return the commands that undo the commits of the run and keep those that the user
    made between its turns.
    """
    if data.is_shared:  # turns overlap, so their ranges do not show who made a commit
        return ["git revert --no-edit COMMIT  # for each commit of the run in that list, newest first"]
    spans = [] if data.state is None else [span for turns in data.state.spans.values() for span in turns]
    ranges: list[tuple[str, str]] = []
    for span in _in_order(spans):
        before = str(span.before.head)
        after = str(span.after.head)
        if ranges and ranges[-1][1] == before:
            ranges[-1] = (ranges[-1][0], after)
        else:
            ranges.append((before, after))
    return [_undo(data, f"{word(before)}..{word(after)}") for before, after in reversed(ranges)]


def _in_order(spans: Sequence[Span]) -> list[Span]:
    """Return the turns that made commits, oldest first: each begins where the one
    before it ended.

    Where the user committed in between, the order in which the tasks began decides.
    """
    left = [span for span in spans if span.before.head is not None and span.after.head not in (None, span.before.head)]
    ordered: list[Span] = []
    while left:
        head = ordered[-1].after.head if ordered else None
        ends = {span.after.head for span in left}
        first = next((span for span in left if span.before.head == head), None)
        first = first or next((span for span in left if span.before.head not in ends), left[0])
        left.remove(first)
        ordered.append(first)
    return ordered


def _outside_git(data: ReportData) -> str:
    if data.is_shared:
        files = sorted({path for evidence in data.all_evidence for path in evidence.changed_files})
        lines = [code(path) for path in files]
    else:
        lines = [f"{code(proof.task)}: {codes(proof.changed_files) or 'none'}" for proof in data.all_evidence]
    return paragraphs(
        _TITLE,
        "The folder is in no git repository, or in one without a commit, so there is no command that undoes it. "
        "These files have changed:",
        bullets(lines),
    )
