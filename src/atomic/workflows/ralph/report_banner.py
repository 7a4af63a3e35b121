"""The part of a report that comes before all else: what may make the rest of it untrue."""

from __future__ import annotations

from collections.abc import Sequence

from atomic.workflows.ralph.account import Account
from atomic.workflows.ralph.evidence import Evidence
from atomic.workflows.ralph.markdown import code
from atomic.workflows.ralph.yolo import TASK as YOLO


def loud_part(account: Account) -> str:
    """What the reader must look at first, as quotes; nothing where there is nothing."""
    return "\n\n".join(part for part in (_protected(account), _changed_copies(account)) if part)


def _protected(account: Account) -> str:
    """Changed tests, gates and CI files."""
    owners: dict[str, list[str]] = {}
    for proof in _all_proofs(account):
        for path in proof.protected_files:
            owners.setdefault(path, []).append(proof.task)
    if not owners:
        return ""
    lines = [f"> - {code(path)}{_owned(account, owners[path])}" for path in sorted(owners)]
    warning = (
        "> **Tests, gates or CI files were changed.** The gates may be green only because of that: look at these first."
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
