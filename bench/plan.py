"""The jobs, their engines and their rows in the table. A round runs the engines in this order."""

from dataclasses import dataclass

GRAPHS = ("bound", "atomic", "burr", "pydantic-graph", "langgraph")
ENGINES = (*GRAPHS, "dbos")  # DBOS has functions only

JOBS: dict[str, tuple[str, ...]] = {
    "chain": GRAPHS,
    "loop": GRAPHS,
    "fan_out": GRAPHS,
    "durable": ("bound", "atomic", "burr", "langgraph"),  # pydantic-graph keeps no journal
    "function": ("atomic", "langgraph", "dbos"),
    "import": ENGINES,
    "start": ("bound", "atomic"),
    "stream": GRAPHS,
    "compile": GRAPHS,
    "nest": GRAPHS,
    "long_loop": ("bound", "atomic"),
    "long_run": ("atomic",),
    "unchanged": ("atomic",),
    "tasks": ("atomic",),
    "entities": ("atomic",),
    "workers": ("atomic",),
    "workspace": ("atomic",),
}

# Jobs that need a minute each.
SLOW = ("workers", "workspace")

IMPORTS = {
    "bound": "import asyncio, msgspec",
    "atomic": "import atomic.workflows",
    "burr": "import burr.core",
    "pydantic-graph": "import pydantic_graph",
    "langgraph": "import langgraph.graph",
    "dbos": "import dbos",
}

# Arguments of the `atomic` command; the bound is an interpreter that does nothing.
STARTS = {"version_cpu": "--version", "help_cpu": "--help"}


@dataclass(frozen=True)
class Row:
    """One line of the table: a metric of a job."""

    job: str
    metric: str
    label: str
    unit: str = "µs"
    bound: str = ""  # the metric that bounds it, where that has another name


ROWS = (
    Row("chain", "chain", "chain of 100, per step"),
    Row("loop", "loop", "loop of 10,000, per step"),
    Row("fan_out", "fan_out_100", "parallel of 100 that suspend, per branch"),
    Row("fan_out", "fan_out_1000", "parallel of 1,000 that suspend, per branch"),
    Row("fan_out", "map_1000", "map over 1,000 that suspend, per item", bound="fan_out_1000"),
    Row("durable", "durable", "durable step (SQLite FULL), each adds 1 KB to the state"),
    Row("durable", "bytes", "on disk after 1,000 such steps, closed", "MB"),
    Row("durable", "bytes_2000", "on disk after 2,000 such steps, closed", "MB"),
    Row("durable", "resume_start", "resume after 1,000 such steps, until the next one starts", "ms"),
    Row("durable", "resume", "resume after 1,000 such steps, until the next one is recorded", "ms"),
    Row("durable", "resume_fresh", "the same, the first time in a process", "ms"),
    Row("function", "function_step", "step of a workflow function, in memory", bound="loop"),
    Row("function", "function_durable", "of these: durable (SQLite FULL), each returns 1 KB", bound="durable"),
    Row("function", "function_resume", "of these: resume after 10,000 steps, until it asks its question again", "ms"),
    Row("import", "import_cpu", "import in a fresh interpreter, CPU", "ms"),
    Row("import", "import_rss", "import in a fresh interpreter, memory", "MB"),
    Row("start", "version_cpu", "`atomic --version`, CPU of the process", "ms"),
    Row("start", "help_cpu", "`atomic --help`, CPU of the process", "ms"),
    Row("stream", "stream", "stream of 1,000 steps, per event"),
    Row("compile", "compile", "build and compile 1,000 nodes, per node"),
    Row("nest", "nest", "ten graphs inside each other, per run"),
    Row("chain", "long_chain", "chain of 1,000, per step: 10× the nodes"),
    Row("long_loop", "long_loop", "loop of 100,000, per step: 10× the steps"),
    Row("long_run", "early_step", "durable step, the first 1,000 of 10,000"),
    Row("long_run", "late_step", "durable step, the last 1,000 of 10,000"),
    Row("unchanged", "unchanged_10k", "durable step beside 10 KB that do not change"),
    Row("unchanged", "unchanged_100k", "durable step beside 100 KB that do not change"),
    Row("unchanged", "unchanged_1m", "durable step beside 1 MB that do not change"),
    Row("tasks", "tasks_load", "10,000 tasks with 100,000 dependencies: load", "ms"),
    Row("tasks", "tasks_ready", "of these: complete one and ask what is ready, the slowest of 200", "ms"),
    Row("entities", "entities_first", "load 1,000 entities of four providers, the first time in a process", "ms"),
    Row("entities", "entities_load", "load 1,000 entities of four providers, again", "ms"),
    Row("entities", "entities_unchanged", "of these: look whether any has changed", "ms"),
    Row("entities", "entities_changed", "of these: read the one that has changed", "ms"),
    Row("entities", "entities_search", "of these: search a name, the slowest of 8", "ms"),
    Row("workers", "one_worker", "eight independent tasks, one worker, until merged", "ms"),
    Row("workers", "four_workers", "eight independent tasks, four workers, until merged", "ms"),
    Row("workspace", "setup_base", "50,000 files and 1 GB of ignored dependencies: the base, once for a run", "ms"),
    Row("workspace", "setup_overlay", "of these: set up a workspace, overlay", "ms"),
    Row("workspace", "setup_overlay_bytes", "of these: on disk", "MB"),
    Row("workspace", "setup_clone", "of these: set up a workspace, clone", "ms"),
    Row("workspace", "setup_clone_bytes", "of these: on disk", "MB"),
)
