"""Run jobs, each in a fresh process of the engine's interpreter, and collect the output.

A round runs every job with every engine in turn, so that a slow minute of a shared machine
affects all of them.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from environments import HOME, PEERS, python_of
from measure import Metrics
from plan import IMPORTS, JOBS, SLOW, STARTS
from results import Results

WORKER = Path(__file__).resolve().parent / "worker.py"
IMPORT_REPEATS = 8

# Interpreter start included: it is the same for all, and the table shows the difference to the bound.
IMPORT_PROBE = """
{imports}
import time
cpu = time.process_time()
try:
    with open("/proc/self/statm") as file:
        memory = int(file.read().split()[1]) * __import__("os").sysconf("SC_PAGE_SIZE")
except OSError:
    memory = __import__("resource").getrusage(0).ru_maxrss
print(cpu, memory)
"""


class JobError(Exception):
    """A job failed, so its engine has no result."""

    def __init__(self, engine: str, job: str, output: str) -> None:
        self.engine = engine
        self.job = job
        super().__init__(f'The job "{job}" of {engine} failed:\n{output}')


def run_rounds(
    results: Results,
    jobs: Iterable[str],
    engines: Iterable[str],
    *,
    rounds: int,
    peer_rounds: int,
    say: Callable[[str], None],
) -> None:
    """Run all rounds, interleaved. Peers and slow jobs need most of the time and run only in the first
    `peer_rounds`.

    Raises:
        JobError: a job failed.
    """
    pragmas = _journal_pragmas() if "durable" in jobs and "atomic" in engines else {}
    for index in range(rounds):
        for job in jobs:
            is_early = index < peer_rounds
            taking_part = [e for e in JOBS[job] if e in engines and (is_early or not (e in PEERS or job in SLOW))]
            for engine in taking_part:
                say(f"round {index + 1}/{rounds}: {job}, {engine}")
                results.add(engine, _measure(engine, job, pragmas))


def _measure(engine: str, job: str, pragmas: dict[str, str | int]) -> Metrics:
    if job == "import":
        return _measure_import(engine)
    if job == "start":
        return {metric: {"start": _measure_start(engine, flag)} for metric, flag in STARTS.items()}
    return msgspec.json.decode(_work(engine, job, pragmas), type=Metrics)


def _journal_pragmas() -> dict[str, str | int]:
    """Return the settings of Atomic's journal connection, so that the bound uses the same."""
    return msgspec.json.decode(_work("atomic", "pragmas", {}), type=dict[str, str | int])


def _work(engine: str, job: str, pragmas: dict[str, str | int]) -> str:
    with tempfile.TemporaryDirectory(dir=HOME, prefix="job-") as folder:
        return _run(engine, job, str(WORKER), engine, job, folder, msgspec.json.encode(pragmas).decode())


def _measure_import(engine: str) -> Metrics:
    probe = IMPORT_PROBE.format(imports=IMPORTS[engine])
    lines = [_run(engine, "import", "-c", probe).split() for _ in range(IMPORT_REPEATS)]
    return {
        "import_cpu": {"import": min(float(cpu) for cpu, _ in lines) * 1e3},
        "import_rss": {"import": min(float(memory) for _, memory in lines)},
    }


def _measure_start(engine: str, flag: str) -> float:
    """Return the CPU ms of a whole process, as the system counts them."""
    python = python_of(engine)
    command = [str(python), "-c", "pass"] if engine == "bound" else [str(python.with_name("atomic")), flag]
    return min(_process_cpu(engine, command) for _ in range(IMPORT_REPEATS)) * 1e3


def _process_cpu(engine: str, command: list[str]) -> float:
    nowhere = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    _, status, used = os.wait4(os.posix_spawn(command[0], command, _environment(), file_actions=[nowhere]), 0)
    if status != 0:
        raise JobError(engine, "start", f"{' '.join(command)}: exit code {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime


def _run(engine: str, job: str, *arguments: str) -> str:
    command = [str(python_of(engine)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment(), cwd=HOME)
    if done.returncode != 0:
        raise JobError(engine, job, done.stderr.strip()[-2_000:])
    return done.stdout


def _environment() -> dict[str, str]:
    """Return our environment without variables that change Python: paths, flags and tracing."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LANGCHAIN", "LANGSMITH"))
    }
    return kept | {"PYTHONHASHSEED": "0", "LANGSMITH_TRACING": "false"}
