"""Run programs and leave nothing of them behind.

Each program gets a session and process group of its own. Whatever ends it (its own exit, a time-out, a
cancellation, the death of Atomic by `kill -9`), the whole group ends with it: TERM, a grace, KILL, and a look
whether it is really gone. Only a process that moved to another group on purpose can escape.
"""

from atomic.processes.errors import ExecError, ExecOutputError, ExecTimeoutError, ProgramNotFoundError
from atomic.processes.execute import MAX_OUTPUT, ExecResult, execute
from atomic.processes.exit_watch import ExitWatch
from atomic.processes.groups import GRACE, end_group
from atomic.processes.program import Program, running
from atomic.processes.start import guard
from atomic.processes.stray_children import end_marked, find_marked, new_mark

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
