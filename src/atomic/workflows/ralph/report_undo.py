"""The part of a report with the commands that show, accept or undo what a run has changed."""

from __future__ import annotations

from collections.abc import Sequence

from atomic.tasks import Task
from atomic.workflows.ralph.account import Account
from atomic.workflows.ralph.evidence import Evidence
from atomic.workflows.ralph.markdown import code, line, word
from atomic.workflows.ralph.report_tasks import MOST_FILES
from atomic.workflows.ralph.state import Span
from atomic.workflows.ralph.yolo import TASK as YOLO

TITLE = "## Commands to accept or undo"
PLACE = "In the root of the repository. None of these commands has been run: keep the work by doing nothing."


def undo_section(account: Account) -> str:
    """For each task, or for the whole where tasks cannot be told apart."""
    proofs = _left_something(account)
    if not proofs:
        return f"{TITLE}\n\nNo task left a change; {code('git status')} shows the current state."
    if all(proof.commit is None for proof in proofs):
        return _outside_git(account, proofs)
    whole = _whole(account)
    if account.is_shared:
        told = f"{account.options.workers} workers shared one checkout: their commits cannot be told apart by task."
        return "\n\n".join([TITLE, f"{PLACE} {told}", whole])
    parts = [_of_task(account, proof) for proof in proofs]
    order = "A later task may build on an earlier one: undo the latest first."
    return "\n\n".join([TITLE, f"{PLACE} {order}", *parts, *([] if account.is_yolo else [whole])])


def _left_something(account: Account) -> list[Evidence]:
    """The evidence of all that was worked on, done or not."""
    ids = [YOLO] if account.is_yolo else [task.id for task in account.tasks]
    return [account.evidence[id] for id in ids if id in account.evidence]


def _of_task(account: Account, proof: Evidence) -> str:
    tasks = {task.id: task for task in account.tasks}
    title = "### The whole run" if account.is_yolo else _title(proof, tasks.get(proof.task))
    return f"{title}\n\n{_commands(account, proof)}"


def _title(proof: Evidence, task: Task | None) -> str:
    failed = " (not done)" if proof.status == "failed" else ""
    return f"### {code(proof.task)} {line(task.title) if task is not None else ''}{failed}"


def _commands(account: Account, proof: Evidence) -> str:
    spans = account.spans(proof)
    if not spans:
        return (
            f"Whether its work is in a commit is not known. When it ended, HEAD was {code(str(proof.commit))}:\n\n"
            + _shell(f"git show {word(str(proof.commit))}", _status(proof.changed_files))
        )
    made = [span for span in spans if span.after.head != span.before.head]
    if not made:
        return _uncommitted(account, proof, proof.changed_files) if proof.changed_files else "It changed nothing."
    rest = f"{_uncommitted(account, proof, proof.uncommitted)}\n\nIts commits:\n\n" if proof.uncommitted else ""
    last = word(str(made[-1].after.head))
    if made[0].before.head is None:
        return f"{rest}It made the first commits of the repository:\n\n" + _shell(f"git log --stat {last}")
    # Between two turns the user may have committed something.
    ranges = [f"{word(str(span.before.head))}..{word(str(span.after.head))}" for span in reversed(made)]
    return rest + _shell(
        *(f"git log --oneline {commits}  # its commits" for commits in ranges),
        f"git show {last}  # the last of them",
        *(_undo(account, commits) for commits in ranges),
    )


def _undo(account: Account, commits: str) -> str:
    """The command that undoes commits and leaves the user's own files alone."""
    users = account.users
    taken = [path for path, trouble in users.troubles.items() if trouble.kind == "committed"]
    taken += users.committed
    # A revert deletes a file that a commit has taken along, and refuses to work while something is staged.
    if not taken and not any(file.is_staged for file in users.files.values()):
        return f"git revert --no-edit {commits}  # undo them, newest first"
    without = " ".join(word(f":(top,literal,exclude){path}") for path in taken)
    files = f"-- . {without}".rstrip()
    return f"git diff --binary {commits} {files} | git apply --reverse  # undo them in the files, then commit"


def _uncommitted(account: Account, proof: Evidence, paths: Sequence[str]) -> str:
    paths = [path for path in paths if path not in account.users.files]
    if not paths:
        return "It changed nothing but uncommitted files of yours: see above."
    files = _words(paths)
    note = f"atomic {account.id[:8]} {proof.task}" if proof.task.isalnum() else f"atomic {account.id[:8]}"
    put_away = f'git stash push --include-untracked -m "{note}" -- {files}' if files else ""
    return (
        f"{'This' if proof.uncommitted else 'It'} was in no commit when the task ended. "
        "Putting it away takes along whatever else is uncommitted in these files; `git stash pop` brings it back.\n\n"
        + _shell(
            _status(paths),
            f"git diff HEAD -- {files}  # look" if files else "git diff HEAD  # look",
            f"git add -- {files} && git commit  # accept" if files else "",
            f"{put_away}  # undo" if put_away else "",
        )
    )


def _status(paths: Sequence[str]) -> str:
    files = _words(paths)
    return f"git status --short -- {files}" if files else "git status --short"


def _words(paths: Sequence[str]) -> str:
    """The files as words for a shell; nothing where they are too many for one line."""
    return " ".join(word(path) for path in paths) if len(paths) <= MOST_FILES else ""


def _whole(account: Account) -> str:
    start = account.start
    if start is None:
        return "### All of it\n\nWhere the run began is not known: `git log` shows the commits."
    if start.head is None:
        return "### All of it\n\nThe repository had no commit before the run: " + code("git log --stat")
    since = word(start.head)
    lines = [f"git diff {since}  # all changes since the start, except new uncommitted files"]
    if any(proof.commit != start.head for proof in _left_something(account)):
        lines.insert(0, f"git log --oneline {since}..HEAD  # all commits since the start, yours too")
        lines += _undo_whole(account)
    return f"### All of it\n\n{_shell(*lines)}"


def _undo_whole(account: Account) -> list[str]:
    """Return the commands that undo the commits of the run, and leave those that the user made between its turns."""
    if account.is_shared:  # the turns overlap, so that their ranges do not say whose a commit is
        return ["git revert --no-edit COMMIT  # for each commit of the run in that list, newest first"]
    spans = [] if account.state is None else [span for turns in account.state.spans.values() for span in turns]
    ranges: list[tuple[str, str]] = []
    for span in _in_order(spans):
        before, after = str(span.before.head), str(span.after.head)
        if ranges and ranges[-1][1] == before:
            ranges[-1] = (ranges[-1][0], after)
        else:
            ranges.append((before, after))
    return [_undo(account, f"{word(before)}..{word(after)}") for before, after in reversed(ranges)]


def _in_order(spans: Sequence[Span]) -> list[Span]:
    """Return the turns that made commits, oldest first: each begins where the one before it ended.

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


def _outside_git(account: Account, proofs: Sequence[Evidence]) -> str:
    told = (
        "The folder is in no git repository, or in one without a commit, so there is no command that undoes it. "
        "These files have changed:"
    )
    if account.is_shared:
        files = sorted({path for proof in proofs for path in proof.changed_files})
        return "\n\n".join([TITLE, told, "\n".join(f"- {code(path)}" for path in files)])
    lines = [
        f"- {code(proof.task)}: {', '.join(code(path) for path in proof.changed_files) or 'none'}" for proof in proofs
    ]
    return "\n\n".join([TITLE, told, "\n".join(lines)])


def _shell(*lines: str) -> str:
    return "\n".join(["```sh", *(line for line in lines if line), "```"])
