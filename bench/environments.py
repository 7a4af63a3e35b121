"""Python environments: Atomic and the bounds run in `.venv`, each peer in `.bench/<name>`.

Only the installation uses the network. A stamp in the environment records the installed
versions, so a second installation does nothing.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench"
CONSTRAINTS = Path(__file__).resolve().parent

PEERS = {
    "burr": ("apache-burr[tracking-client]",),  # its parallel actions import the tracking models
    "pydantic-graph": ("pydantic-graph",),
    "langgraph": ("langgraph", "langgraph-checkpoint-sqlite"),
    "dbos": ("dbos",),
}


class InstallError(Exception):
    """A peer could not be installed."""

    def __init__(self, peer: str, output: str) -> None:
        self.peer = peer
        super().__init__(f"Cannot install {peer} into .bench/{peer} (leave it out with --no-peers):\n{output}")


def constraints_of(peer: str) -> Path:
    """Return the file with the pinned versions of a peer and its dependencies."""
    return CONSTRAINTS / f"constraints-{peer}.txt"


def version_of(peer: str) -> str:
    """Return the pinned version of the peer itself."""
    name = PEERS[peer][0].partition("[")[0]
    pins = dict(line.split("==") for line in constraints_of(peer).read_text().split())
    return pins[name]


def python_of(engine: str) -> Path:
    """Return the interpreter that runs this engine's jobs."""
    if engine not in PEERS:
        return Path(sys.executable)
    folder = "Scripts" if sys.platform == "win32" else "bin"
    return HOME / engine / folder / "python"


def install(peer: str) -> None:
    """Create the peer's environment unless it exists.

    Raises:
        InstallError: pip failed; the message has its output.
    """
    wanted = hashlib.sha256(f"{sys.version}{PEERS[peer]}{constraints_of(peer).read_text()}".encode()).hexdigest()
    stamp = HOME / peer / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"installing {peer} into .bench/{peer}", file=sys.stderr, flush=True)
    _run(peer, sys.executable, "-m", "venv", "--clear", str(HOME / peer))
    pip = (str(python_of(peer)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(peer, *pip, "--constraint", str(constraints_of(peer)), *PEERS[peer])
    stamp.write_text(wanted)


def _run(peer: str, *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InstallError(peer, done.stderr.strip())
