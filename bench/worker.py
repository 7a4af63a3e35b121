"""Run one job of one engine in this process and print its metrics as one line of JSON.

Run by `harness.py` with the engine's own interpreter; needs nothing but the standard library and that engine.
"""

import importlib
import json
import sys
from pathlib import Path

MODULES = {
    "bound": ["workloads.bound"],
    "atomic": [
        "workloads.atomic_engine",
        "workloads.atomic_journal",
        "workloads.atomic_functions",
        "workloads.atomic_tasks",
        "workloads.atomic_entities",
        "workloads.atomic_workspaces",
    ],
    "burr": ["peers.burr_engine"],
    "pydantic-graph": ["peers.pydantic_engine"],
    "langgraph": ["peers.langgraph_engine"],
    "dbos": ["peers.dbos_engine"],
}


def main() -> None:
    """Run `worker.py ENGINE JOB FOLDER PRAGMAS`. The caller makes and removes FOLDER, on a real disk."""
    engine, job, folder, pragmas = sys.argv[1:]
    for module in MODULES[engine]:
        run = importlib.import_module(module).JOBS.get(job)
        if run is not None:
            print(json.dumps(run(Path(folder), json.loads(pragmas))))
            return
    sys.exit(f"{engine} has no job {job!r}")


if __name__ == "__main__":
    main()
