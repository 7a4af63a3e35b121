"""Run programs and leave nothing of them behind.

Each program has its own session and process group. When it ends, by itself, by a
timeout, by a cancellation or because Atomic was killed with SIGKILL, its whole group
ends too: TERM, a grace period, KILL, and a check that it is gone. Only a process that
moves to another group on purpose can escape.

Start with `execute`, which runs a program to its end, and `program` for one that stays.

Public modules: `temporary_folders`.
"""

from atomic.processes.execute import MAX_OUTPUT, ExecOutputError, ExecResult, ExecTimeoutError, execute
from atomic.processes.groups import GRACE, ExitWatch, end_group, end_marked, find_marked, new_mark
from atomic.processes.program import Program, running
from atomic.processes.start import ExecError, ProgramNotFoundError, guard

__all__ = [
    "GRACE",
    "MAX_OUTPUT",
    "ExecError",
    "ExecOutputError",
    "ExecResult",
    "ExecTimeoutError",
    "ExitWatch",
    "Program",
    "ProgramNotFoundError",
    "end_group",
    "end_marked",
    "execute",
    "find_marked",
    "guard",
    "new_mark",
    "running",
]
