"""The start of a report: warnings about lost work, and about changed tests or records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from atomic.ralph.file_names import MOST_NAMED, named, shown
from atomic.ralph.markdown import bullets, code, codes, line, paragraphs, quote, shell, word
from atomic.ralph.report_data import ReportData
from atomic.ralph.users_files import CHECKS, Trouble, UsersFile, describe, take_out


def warnings(data: ReportData) -> str:
    """Return the warnings that the user must read first.

    Empty if there are no warnings.
    """
    texts = (
        _touched_files(data),
        _existing_files(data),
        _committed_files(data),
        _replaced_versions(data),
        _lost_refs(data),
        _deleted_ignored(data),
        _weakened_checks(data),
        _protected_files(data),
        _changed_copies(data),
    )
    return paragraphs(*(quote(text) for text in texts if text))


def late_warning(data: ReportData) -> str:
    """Name the user's files that changed after the last turn.

    The user may have changed them.
    """
    if not data.late:
        return ""
    paths = " ".join(word(path) for path in data.late[:MOST_NAMED])
    return quote(
        "**Uncommitted files of yours changed after the last turn.** If it was not you, run this in the root of the"
        f" repository: {code(f'atomic salvage {data.id} {paths}', 4000)}."
    )


def _touched_files(data: ReportData) -> str:
    """List touched uncommitted files of the user, and how to restore them."""
    if not data.users.troubles:
        return ""
    troubles = list(data.users.troubles.items())[:MOST_NAMED]
    files = data.users.files
    commands = [
        command
        for path, trouble in troubles
        if trouble.kind == "committed"
        for command in take_out(path, files[path], trouble.commit)
    ]
    way_out = ""
    if commands:
        introduction = "To take a file out of the branch again and keep it as yours, in the root of the repository:"
        way_out = paragraphs(introduction, shell(*commands))
    return paragraphs(
        "**Your uncommitted work has changed.** You may have changed it yourself during a turn or a check.",
        bullets(_touched_file(path, files[path], trouble) for path, trouble in troubles),
        way_out,
        f"{code(f'atomic salvage {data.id}')} puts back what can be restored and prints these commands again.",
    )


def _touched_file(path: str, file: UsersFile, trouble: Trouble) -> str:
    text = describe(code(shown(path)), trouble)
    if trouble.content == file.content:
        return text
    if file.not_kept:
        return f"{text}. **There is no copy of it**: {file.not_kept}."
    return f"{text}, and was changed" if trouble.kind == "committed" else text


def _existing_files(data: ReportData) -> str:
    """Report that the run began without a commit, and which files are gone."""
    files = data.existing.files
    if not files:
        return ""
    deleted = list(data.existing.troubles)
    lines = ["**There was no commit when the run began**: git cannot bring back what agents changed or deleted."]
    if deleted:
        salvage = code(f"atomic salvage {data.id}")
        lines.append(f"Deleted: {named(deleted)}. {salvage} puts back what can be restored.")
    if lost := [path for path in deleted if files[path].not_kept]:
        lines.append(f"**There is no copy** of {named(lost)}: {files[lost[0]].not_kept}.")
    lines.append(f"{code(f'atomic salvage {data.id} PATH')} puts back a file that was changed.")
    return "\n".join(lines)


def _committed_files(data: ReportData) -> str:
    """Name the user's files that were committed during a turn, in commits without any
    work of the run.
    """
    commits = dict(list(data.users.committed.items())[:MOST_NAMED])
    if not commits:
        return ""
    commands = [command for path, commit in commits.items() for command in take_out(path, UsersFile(""), commit)]
    return paragraphs(
        "**Uncommitted files of yours were committed during a turn, probably by you.**",
        bullets(f"{code(shown(path))} is in commit {commit[:12]}" for path, commit in commits.items()),
        "If it was not you, these commands take them out of the branch again, in the root of the repository:",
        shell(*commands),
    )


def _replaced_versions(data: ReportData) -> str:
    """Name the user's files of which a version was replaced: the user may have written
    it.
    """
    if not data.versions:
        return ""
    return (
        f"**A version of uncommitted files of yours was replaced during the run: {named([*data.versions])}.** You may"
        f" have written it: {code(f'atomic salvage {data.id}')} writes it next to the file."
    )


def _lost_refs(data: ReportData) -> str:
    """Name the user's lost branches, tags and stashes, and the commands that restore
    them.
    """
    if not data.lost_refs:
        return ""
    refs = data.lost_refs[:MOST_NAMED]
    return paragraphs(
        "**Branches, tags, stashes or submodules of yours were moved or deleted.**",
        bullets(f"{line(ref.said)}; {code(ref.restore_command, 1000)} brings it back" for ref in refs),
    )


def _deleted_ignored(data: ReportData) -> str:
    """Name deleted files that git ignores; no copy of them is kept."""
    if not data.deleted_ignored:
        return ""
    return (
        f"**Files that git ignores were deleted during a turn: {named(data.deleted_ignored)}.** Atomic keeps no copy of"
        " such files."
    )


def _weakened_checks(data: ReportData) -> str:
    """Report that fewer tests ran than before, or that a former check fails."""
    if not data.weakened:
        return ""
    return paragraphs("**The checks may prove less than before the run.**", bullets(line(one) for one in data.weakened))


def _protected_files(data: ReportData) -> str:
    """Name changed tests, checks and CI files."""
    lines = _by_task(data, {proof.task: proof.protected_files for proof in data.all_evidence})
    if not lines and not data.by_reviewers:
        return ""
    lines += [f"{code(path)} (by a reviewer)" for path in data.by_reviewers]
    return paragraphs(
        "**Tests, checks or CI files were changed.** The checks may be green only because of that: "
        "look at these first.",
        bullets(lines),
    )


def _by_task(data: ReportData, paths: Mapping[str, Sequence[str]]) -> list[str]:
    """Return files with the tasks that have changed them, where these are known."""
    tasks: dict[str, list[str]] = {}
    for task, changed in paths.items():
        for path in changed:
            tasks.setdefault(path, []).append(task)
    if data.is_shared or data.is_yolo:
        return [code(path) for path in sorted(tasks)]
    return [f"{code(path)} (task {codes(tasks[path])})" for path in sorted(tasks)]


def _changed_copies(data: ReportData) -> str:
    if not data.changed_copies:
        return ""
    return (
        f"**Another program changed {codes(data.changed_copies)} in the session's folder.** These are copies; this"
        " report is made from the journal. Ask which program wrote there, and why."
    )


def harm(data: ReportData) -> str:
    """Return possible losses, omissions and changed checks, as the end of a sentence."""
    parts: list[str] = []
    if files := data.uncommitted:
        number = "1 file is" if len(files) == 1 else f"{len(files)} files are"
        hooks = codes(data.hooks, " and ")
        parts.append(f"{number} not committed: no worker did it (the repository has the commit hook {hooks})")
    if troubles := data.users.troubles:
        by_checks = all(trouble.task == CHECKS for trouble in troubles.values())
        who = "" if by_checks else " by a turn or by you"
        touched = [describe(code(shown(path)), trouble) for path, trouble in troubles.items()]
        parts.append(f"your uncommitted work was touched{who}: {_first_three(touched)}")
    if commits := data.users.committed:
        committed = [f"{code(shown(path))} (commit {commit[:12]})" for path, commit in commits.items()]
        parts.append(f"committed during a turn, probably by you: {_first_three(committed)}")
    if deleted := list(data.existing.troubles):
        number = "1 file of yours that was in no commit was"
        if len(deleted) > 1:
            number = f"{len(deleted)} files of yours that were in no commit were"
        parts.append(f"{number} deleted: {named(deleted, most=3)}")
    if data.undone:
        parts.append(f"undone while no agent worked: the changes of task {codes(data.undone)}")
    if data.weakened:
        parts.append(_first_three([line(one) for one in data.weakened]))
    if data.lost_refs:
        parts.append(_first_three([line(ref.said) for ref in data.lost_refs]))
    if files := _by_task(data, {proof.task: proof.steering_files for proof in data.all_evidence}):
        parts.append(f"files that decide what the checks do were changed by the run: {_first_three(files)}")
    return "".join(f"; {part}" for part in parts)


def late(data: ReportData) -> str:
    """Return that files of the user changed after the last comparison."""
    return f"; changed after the last turn: {named(data.late, most=3)}" if data.late else ""


def _first_three(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
    return f"{', '.join(texts[:3])}{more}"
