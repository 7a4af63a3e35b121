"""Where agents work: copies of a project that nothing leaves but commits.

A `Base` is prepared once for a run; a `Workspace` is a place on top of it where
programs run, and whose content is kept in the user's repository before it is removed.
The room knows git and processes, and neither agents nor tasks.

Start with `run_workspaces`, which a run uses. Below it are `branch_record` (the run's
branch), `run_folders` (its base and workspaces), `parked_work` and `work_merges`. Then
read `workspace`: one place and its end. `isolation` chooses a kind, `views` starts
programs, and `namespace` is the small program that makes private views of the file
system. `acceptance` merges the branch of a run into the user's branch.

Public modules: `acceptance`, `branch_merges`, `run_branch`, `run_workspaces`.
"""

from atomic.workspaces.author import Author
from atomic.workspaces.base import Base, prepare_base
from atomic.workspaces.branch_moves import BranchCheckedOutError, find_checkout, move_branch
from atomic.workspaces.branch_record import BranchMovedError
from atomic.workspaces.capture import UNSOLVED, WITH_OTHERS, Captured
from atomic.workspaces.checkout import open_checkout
from atomic.workspaces.contents import Contents, find_contents
from atomic.workspaces.copied_paths import foreign_paths
from atomic.workspaces.errors import WorkspaceError
from atomic.workspaces.folders import remove_tree, size_of
from atomic.workspaces.git_in_view import restore_files_in, tracked_files_in
from atomic.workspaces.isolation import Isolation, IsolationError, IsolationKind, choose_isolation
from atomic.workspaces.merging import WHOLE, Merged, find_dropped, rebase
from atomic.workspaces.obstacles import find_obstacle
from atomic.workspaces.open_workspace import OpenWorkspace
from atomic.workspaces.rebasing import Conflict
from atomic.workspaces.run_branch import Landed, RunBranch, Work, read_branch
from atomic.workspaces.run_workspaces import RunWorkspaces
from atomic.workspaces.setup import ProjectSetup, Setup, run_setup
from atomic.workspaces.views import View
from atomic.workspaces.workspace import Workspace, unparked_in

__all__ = [
    "UNSOLVED",
    "WHOLE",
    "WITH_OTHERS",
    "Author",
    "Base",
    "BranchCheckedOutError",
    "BranchMovedError",
    "Captured",
    "Conflict",
    "Contents",
    "Isolation",
    "IsolationError",
    "IsolationKind",
    "Landed",
    "Merged",
    "OpenWorkspace",
    "ProjectSetup",
    "RunBranch",
    "RunWorkspaces",
    "Setup",
    "View",
    "Work",
    "Workspace",
    "WorkspaceError",
    "choose_isolation",
    "find_checkout",
    "find_contents",
    "find_dropped",
    "find_obstacle",
    "foreign_paths",
    "move_branch",
    "open_checkout",
    "prepare_base",
    "read_branch",
    "rebase",
    "remove_tree",
    "restore_files_in",
    "run_setup",
    "size_of",
    "tracked_files_in",
    "unparked_in",
]
