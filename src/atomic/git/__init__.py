"""Git as Atomic itself uses it: nothing that a repository brings along is run by it.

No hook, monitor, pager, external diff, filter or driver runs, no file that a setting includes is read: git gets other
settings than the repository's, from which only what is plain data is taken over.
"""

from atomic.git.addresses import RemoteAddress, read_address
from atomic.git.apply import apply_changes
from atomic.git.errors import GitError, PatchError
from atomic.git.folder_changes import Changes, FileWatch, watching
from atomic.git.patches import split_mail, split_patch
from atomic.git.refs import Refs, read_refs
from atomic.git.repository import Repository, find_repository
from atomic.git.snapshots import FileChange, FolderSnapshot, SnapshotStore, shared_snapshot_store
from atomic.git.submodules import uncommitted_in_submodules

__all__ = [
    "Changes",
    "FileChange",
    "FileWatch",
    "FolderSnapshot",
    "GitError",
    "PatchError",
    "Refs",
    "RemoteAddress",
    "Repository",
    "SnapshotStore",
    "apply_changes",
    "find_repository",
    "read_address",
    "read_refs",
    "shared_snapshot_store",
    "split_mail",
    "split_patch",
    "uncommitted_in_submodules",
    "watching",
]
