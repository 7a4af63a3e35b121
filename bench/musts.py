"""The numbers that must hold: the rows of the specification that there is code for, and the scale of task lists."""

from collections.abc import Callable
from dataclasses import dataclass

from results import Results

GROWTH = 1.5  # a cost that does not grow has the ratio 1; the rest is room for caches and a shared machine


@dataclass(frozen=True)
class Must:
    """A limit, and how the number that it limits is found."""

    text: str
    number: Callable[[Results], float | None]
    limit: float
    at_least: bool = False
    unit: str = ""


@dataclass(frozen=True)
class Verdict:
    """The measured number of a must; None: not in this run."""

    must: Must
    number: float | None

    @property
    def missed(self) -> bool:
        """Measured, and not within the limit."""
        if self.number is None:
            return False
        return self.number < self.must.limit if self.must.at_least else self.number > self.must.limit

    def __str__(self) -> str:
        sign = "≥" if self.must.at_least else "≤"
        wanted = f"{self.must.text}: {sign} {self.must.limit:g}{self.must.unit}"
        if self.number is None:
            return f"not run  {wanted}"
        return f"{'MISSED ' if self.missed else 'holds  '}  {wanted}, measured {self.number:,.2f}{self.must.unit}"


def judge(results: Results) -> list[Verdict]:
    """Return every must with the number that this run measured for it."""
    return [Verdict(must, must.number(results)) for must in MUSTS]


def _is(metric: str, scale: float = 1.0) -> Callable[[Results], float | None]:
    def number(results: Results) -> float | None:
        value = results.best("atomic", metric)
        return None if value is None else value / scale

    return number


def _to_bound(metric: str, bound: str = "") -> Callable[[Results], float | None]:
    return lambda results: results.ratio("atomic", metric, "bound", bound)


def _quicker_than(peer: str, metric: str) -> Callable[[Results], float | None]:
    return lambda results: results.ratio(peer, metric, "atomic")


def _growth(metric: str, from_: str) -> Callable[[Results], float | None]:
    return lambda results: results.ratio("atomic", metric, "atomic", from_)


def _above_bound(metric: str, scale: float) -> Callable[[Results], float | None]:
    def number(results: Results) -> float | None:
        ours = results.best("atomic", metric)
        bound = results.best("bound", metric)
        return None if ours is None or bound is None else (ours - bound) / scale

    return number


def _step(metric: str, label: str) -> tuple[Must, ...]:
    return (
        Must(f"{label}, per step", _is(metric), 6, unit=" µs"),
        Must(f"{label}, times quicker than Burr", _quicker_than("burr", metric), 10, at_least=True),
        Must(f"{label}, times quicker than LangGraph", _quicker_than("langgraph", metric), 50, at_least=True),
    )


MUSTS = (
    *_step("chain", "chain of 100"),
    *_step("loop", "loop of 10,000"),
    Must("chain of 100, times the bound", _to_bound("chain"), 8),
    Must("loop of 10,000, times the bound", _to_bound("loop"), 8),
    Must("parallel of 100, times the bound", _to_bound("fan_out_100"), 2),
    Must("parallel of 1,000, times the bound", _to_bound("fan_out_1000"), 2),
    Must("map over 1,000, times the bound", _to_bound("map_1000", "fan_out_1000"), 1.6),
    Must("durable step, times the bound", _to_bound("durable"), 2),
    Must("on disk after 1,000 steps of 1 KB", _is("bytes", 1e6), 1.7, unit=" MB"),
    Must("on disk, 2,000 steps against 1,000 (linear)", _growth("bytes_2000", "bytes"), 2.3),
    Must("resume after 1,000 steps", _is("resume"), 15, unit=" ms"),
    Must("resume after 1,000 steps, the first time in a process", _is("resume_fresh"), 15, unit=" ms"),
    Must("step of a workflow function, times a step of a graph", _growth("function_step", "loop"), 2),
    Must("durable step of a workflow function, times the bound", _to_bound("function_durable", "durable"), 1.3),
    Must("workflow function, resume after 10,000 steps", _is("function_resume"), 100, unit=" ms"),
    Must("import atomic.workflows, CPU above the bound", _above_bound("import_cpu", 1), 30, unit=" ms"),
    Must("import atomic.workflows, memory above the bound", _above_bound("import_rss", 1e6), 4, unit=" MB"),
    Must("atomic --version, CPU", _is("version_cpu"), 120, unit=" ms"),
    Must("atomic --help, CPU", _is("help_cpu"), 120, unit=" ms"),
    Must("cost per step, 10× the nodes", _growth("long_chain", "chain"), GROWTH),
    Must("cost per step, 10× the steps", _growth("long_loop", "loop"), GROWTH),
    Must("cost per durable step, late against early in 10,000", _growth("late_step", "early_step"), GROWTH),
    Must("cost per durable step, 10× unchanged state", _growth("unchanged_100k", "unchanged_10k"), GROWTH),
    Must("cost per durable step, 100× unchanged state", _growth("unchanged_1m", "unchanged_10k"), GROWTH),
    Must("10,000 tasks with 100,000 dependencies, load", _is("tasks_load", 1e3), 2, unit=" s"),
    Must("of these the next ready", _is("tasks_ready"), 10, unit=" ms"),
    Must("load 1,000 entities of four providers, the first time", _is("entities_first"), 150, unit=" ms"),
    Must("of these a search as you type", _is("entities_search"), 2, unit=" ms"),
    Must("eight tasks, four workers, times faster than one", _growth("one_worker", "four_workers"), 3.2, at_least=True),
    Must("set up a workspace of 50,000 files and 1 GB, overlay", _is("setup_overlay", 1e3), 1.5, unit=" s"),
    Must("of these on disk", _is("setup_overlay_bytes", 1e6), 20, unit=" MB"),
)
