"""Where agents work: copies of a project that nothing leaves but commits.

A `Base` is prepared once for a run; a `Workspace` is a place on top of it where
programs run, and whose content is kept in the user's repository before it is removed.
The room knows git and processes, and neither agents nor tasks.

Start with `workspace`; `isolation` chooses a kind, `views` starts programs, and
`namespace` is the small program that makes private views of the file system.
"""

from atomic.workspaces.base import Base, prepare_base
from atomic.workspaces.capture import Author, Captured
from atomic.workspaces.contents import Contents, find_contents
from atomic.workspaces.copied_paths import foreign_paths
from atomic.workspaces.errors import WorkspaceError
from atomic.workspaces.isolation import Isolation, IsolationError, IsolationKind, choose_isolation
from atomic.workspaces.merging import Merged, move_branch, rebase
from atomic.workspaces.setup import Setup, run_setup
from atomic.workspaces.views import View
from atomic.workspaces.workspace import Conflict, Workspace

__all__ = [
    "Author",
    "Base",
    "Captured",
    "Conflict",
    "Contents",
    "Isolation",
    "IsolationError",
    "IsolationKind",
    "Merged",
    "Setup",
    "View",
    "Workspace",
    "WorkspaceError",
    "choose_isolation",
    "find_contents",
    "foreign_paths",
    "move_branch",
    "prepare_base",
    "rebase",
    "run_setup",
]
