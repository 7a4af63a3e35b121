"""The branch of a run; see `atomic.workspaces.run_branch`."""

from atomic.workspaces.run_branch import (
    FACT,
    PARKED,
    PREFIX,
    Landed,
    RunBranch,
    branch_name,
    parked_prefix,
    read_branch,
)

__all__ = ["FACT", "PARKED", "PREFIX", "Landed", "RunBranch", "branch_name", "parked_prefix", "read_branch"]
