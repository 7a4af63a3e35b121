"""The part of a report that comes before all else: what may make the rest of it untrue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from atomic.workflows.ralph.account import Account
from atomic.workflows.ralph.evidence import Evidence
from atomic.workflows.ralph.markdown import code, line, word
from atomic.workflows.ralph.users_files import MOST_NAMED, Trouble, UsersFile, describe, named, shown, take_out
from atomic.workflows.ralph.yolo import TASK as YOLO


def loud_part(account: Account) -> str:
    """What the reader must look at first, as quotes; nothing where there is nothing."""
    parts = (
        _users_files(account),
        _existing(account),
        _own_commits(account),
        _versions(account),
        _users_refs(account),
        _protected(account),
        _changed_copies(account),
    )
    return "\n\n".join(part for part in parts if part)


def _users_files(account: Account) -> str:
    """What became of the user's own uncommitted files."""
    users = account.users
    if not users.troubles:
        return ""
    shown_troubles = list(users.troubles.items())[:MOST_NAMED]
    lines = [f"> - {_users_file(path, users.files[path], trouble)}" for path, trouble in shown_troubles]
    back = f"> {code(f'atomic salvage {account.id}')} puts back what can be restored and prints these commands again."
    return "\n".join(
        [
            "> **Your uncommitted work is not as it was.** You may have changed it yourself during a turn or a check.",
            ">",
            *lines,
            ">",
            *_taking_out(account, dict(shown_troubles)),
            back,
        ]
    )


def _taking_out(account: Account, troubles: Mapping[str, Trouble]) -> list[str]:
    """The commands for files that are in a commit; the same that `atomic salvage` prints."""
    files = account.users.files
    commands = [
        command
        for path, trouble in troubles.items()
        if trouble.kind == "committed"
        for command in take_out(path, files[path], trouble.commit)
    ]
    if not commands:
        return []
    place = "> To take a file out of the branch again and keep it as yours, in the root of the repository:"
    return [place, ">", "> ```sh", *(f"> {command}" for command in commands), "> ```", ">"]


def _existing(account: Account) -> str:
    """Say that the run began without a commit, and which files are gone."""
    existing = account.existing
    if not existing.files:
        return ""
    gone = list(existing.troubles)
    lines = ["> **There was no commit when the run began**: git cannot bring back what agents changed or deleted."]
    if gone:
        back = code(f"atomic salvage {account.id}")
        lines.append(f"> Deleted: {named(gone)}. {back} puts back what can be restored.")
    if lost := [path for path in gone if existing.files[path].not_kept]:
        lines.append(f"> **There is no copy** of {named(lost)}: {existing.files[lost[0]].not_kept}.")
    lines.append(f"> {code(f'atomic salvage {account.id} PATH')} puts back a file that was changed.")
    return "\n".join(lines)


def _own_commits(account: Account) -> str:
    """Name the user's files that were committed during a turn, in commits without any work of the run."""
    own = dict(list(account.users.committed.items())[:MOST_NAMED])
    if not own:
        return ""
    lines = [f"> - {code(shown(path))} is in commit {commit[:12]}" for path, commit in own.items()]
    commands = [command for path, commit in own.items() for command in take_out(path, UsersFile(content=""), commit)]
    return "\n".join(
        [
            "> **Uncommitted files of yours were committed during a turn, probably by you.**",
            ">",
            *lines,
            ">",
            "> If it was not you, these commands take them out of the branch again, in the root of the repository:",
            ">",
            "> ```sh",
            *(f"> {command}" for command in commands),
            "> ```",
        ]
    )


def _versions(account: Account) -> str:
    """Name the user's files of which a version was replaced during the run: the user may have written it."""
    if not account.versions:
        return ""
    names = named([*account.versions])
    return (
        f"> **A version of uncommitted files of yours was replaced during the run: {names}.** You may have written it:"
        f" {code(f'atomic salvage {account.id}')} writes it next to the file."
    )


def _users_refs(account: Account) -> str:
    """What became of the user's other branches, tags and stashes, and the commands that bring them back."""
    if not account.lost_refs:
        return ""
    lines = [f"> - {line(one.said)}; {code(one.way_back, 1000)} brings it back" for one in account.lost_refs]
    return "\n".join(["> **Branches, tags or stashes of yours are not as you left them.**", ">", *lines[:MOST_NAMED]])


def late_part(account: Account) -> str:
    """Name the user's files that changed after the last turn; the user may have done that."""
    if not account.late:
        return ""
    paths = " ".join(word(path) for path in account.late[:MOST_NAMED])
    return (
        f"> **Uncommitted files of yours changed after the last turn.** If it was not you, run this in the root of the"
        f" repository: {code(f'atomic salvage {account.id} {paths}', 4000)}."
    )


def _users_file(path: str, file: UsersFile, trouble: Trouble) -> str:
    lost = trouble.content != file.content
    if lost and file.not_kept:
        return f"{describe(code(shown(path)), trouble)}. **There is no copy of it**: {file.not_kept}."
    if lost and trouble.kind == "committed":
        return f"{describe(code(shown(path)), trouble)}, and was changed"
    return describe(code(shown(path)), trouble)


def _protected(account: Account) -> str:
    """Changed tests, checks and CI files."""
    owners: dict[str, list[str]] = {}
    for proof in _all_proofs(account):
        for path in proof.protected_files:
            owners.setdefault(path, []).append(proof.task)
    if not owners:
        return ""
    lines = [f"> - {code(path)}{_owned(account, owners[path])}" for path in sorted(owners)]
    warning = (
        "> **Tests, checks or CI files were changed.** The checks may be green only because of that: "
        "look at these first."
    )
    return "\n".join([warning, ">", *lines])


def _all_proofs(account: Account) -> list[Evidence]:
    ids = [YOLO] if account.is_yolo else [task.id for task in account.tasks]
    return [account.evidence[id] for id in ids if id in account.evidence]


def _owned(account: Account, tasks: Sequence[str]) -> str:
    return "" if account.is_shared or account.is_yolo else f" (task {', '.join(code(task) for task in tasks)})"


def _changed_copies(account: Account) -> str:
    if not account.changed_copies:
        return ""
    names = ", ".join(code(name) for name in account.changed_copies)
    return (
        f"> **Another program changed {names} in the session's folder.** These are copies; this report is made from"
        " the journal. Ask which program wrote there, and why."
    )
