"""Git as Atomic itself uses it: no program that a repository names is run.

Hooks, monitors, pagers, external diffs, filters and merge drivers do not run, and files
that a configuration includes are not read. Git gets a configuration of our own with the
repository's plain data in it (`repository.py`, the place to start reading).

`snapshots.py` keeps the state of a folder, `folder_changes.py` records what changes
while an agent works, and `apply.py` makes recorded changes again.

Public modules: `calls`.
"""

from atomic.git.addresses import RemoteAddress, read_address
from atomic.git.apply import PatchError, apply_changes
from atomic.git.apply_elsewhere import apply_changes_in
from atomic.git.calls import GitError
from atomic.git.folder_changes import Changes, FileWatch, watch_folder
from atomic.git.patches import split_mail, split_patch
from atomic.git.refs import Refs, may_have_ref, read_refs
from atomic.git.repository import InnerFiles, Repository, find_repository, uncommitted_in_submodules
from atomic.git.snapshots import ChangeStatus, FileChange, FolderSnapshot, SnapshotStore, shared_snapshot_store
from atomic.git.watch_elsewhere import WatchElsewhere, watch_folder_in

__all__ = [
    "ChangeStatus",
    "Changes",
    "FileChange",
    "FileWatch",
    "FolderSnapshot",
    "GitError",
    "InnerFiles",
    "PatchError",
    "Refs",
    "RemoteAddress",
    "Repository",
    "SnapshotStore",
    "WatchElsewhere",
    "apply_changes",
    "apply_changes_in",
    "find_repository",
    "may_have_ref",
    "read_address",
    "read_refs",
    "shared_snapshot_store",
    "split_mail",
    "split_patch",
    "uncommitted_in_submodules",
    "watch_folder",
    "watch_folder_in",
]
