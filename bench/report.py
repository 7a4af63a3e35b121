"""The tables of results, for the terminal and for `docs/benchmarks.md`."""

import os
import platform
import sqlite3
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from environments import PEERS, ROOT, version_of
from musts import Verdict
from plan import ENGINES, ROWS, Row
from results import Results
from screens import Screens

HEADINGS = (
    "what",
    "unit",
    "bound",
    "Atomic",
    "× bound",
    "Burr",
    "pydantic-graph",
    "LangGraph",
    "DBOS",
    "best peer ÷ Atomic",
)

OPENING = """\
# Benchmarks

Written by the benchmark itself; do not edit. To repeat: `make setup`, then
`.venv/bin/python bench/run.py --write docs/benchmarks.md`. The first time it installs the other engines below
`.bench/`, with the versions in `bench/constraints-*.txt`; after that it needs no network.

* {date}, commit {commit}, {machine}
* others: {others}
* {rounds} rounds, the others and workspaces in the first {peer_rounds}. In a round every job runs with every engine in
  turn, each in a fresh process with `PYTHONHASHSEED=0`
* CPU time of the process (user and system) after a warm-up, never wall time. Each number is the **minimum** over
  the rounds, and over the ways in which an engine can be used
* The rows of workers and workspaces are wall time. Their time is compressed: a turn of the scripted agent takes 10 s,
  a check 0.3 s
* The bound is the same work written by hand: plain asyncio with a task for each branch; raw SQLite with one INSERT
  in autocommit for each step and the pragmas of Atomic's own journal; `import asyncio, msgspec`; a Python that
  does nothing"""


SCREEN_OPENING = """\
## The screen

Measured from outside, in its own terminal of 80×24 (5,000 messages: 120×40), with a scripted engine. CPU counts the
supervisor and the screen; a key's CPU is what they used from the key to its frame. In {pressure:.0f} % of the minute
before, a process waited for a core: above 20 % times are only shown, and CPU is judged. The skeleton is Textual with
three widgets and no logic; other agents are measured up to their first three lines, in an empty home."""


@dataclass(frozen=True)
class Setting:
    """How the run was made, so that others can repeat it."""

    rounds: int
    peer_rounds: int
    peers: Sequence[str]


def table(results: Results) -> list[str]:
    """Return the main table, with the rows that were measured."""
    measured = [row for row in ROWS if any(results.best(engine, row.metric) is not None for engine in ENGINES)]
    return _markdown([HEADINGS, *(_cells(results, row) for row in measured)])


def _cells(results: Results, row: Row) -> tuple[str, ...]:
    numbers = {engine: results.best(engine, row.metric) for engine in ENGINES}
    numbers["bound"] = results.best("bound", row.bound or row.metric)
    to_bound = results.ratio("atomic", row.metric, "bound", row.bound or row.metric)
    ahead = [ratio for peer in PEERS if (ratio := results.ratio(peer, row.metric, "atomic")) is not None]
    shown = {engine: _number(number, row.unit) for engine, number in numbers.items()}
    ratios = _times(to_bound), _times(min(ahead, default=None))
    return (
        row.label,
        row.unit,
        shown["bound"],
        shown["atomic"],
        ratios[0],
        *(shown[peer] for peer in PEERS),
        ratios[1],
    )


def ways(results: Results) -> list[str]:
    """Return a table of the variants of each engine that has several; the main table has the best."""
    lines: list[tuple[str, ...]] = [("what", "unit", "engine", "way", "number")]
    for row in ROWS:
        for engine in ENGINES:
            found = results.variants(engine, row.metric)
            if len(found) > 1:
                lines += [(row.label, row.unit, engine, way, _number(n, row.unit)) for way, n in found.items()]
    return _markdown(lines) if len(lines) > 1 else []


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "MB":
        value /= 1e6
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:,.0f}×" if ratio >= 20 else f"{ratio:.2f}×"


def _markdown(lines: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows as a Markdown table that is readable as text: words left, numbers right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    numeric = [i > 1 and all(_is_number(line[i]) for line in lines[1:]) for i in range(len(widths))]
    rule = [("-" * (width - 1) + ":") if right else "-" * width for width, right in zip(widths, numeric, strict=True)]
    return [_line(line, widths, numeric) for line in (lines[0], tuple(rule), *lines[1:])]


def _is_number(text: str) -> bool:
    return not text or text[0].isdigit() or text[0] == "-"


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    ]
    return f"| {' | '.join(padded)} |"


def page(results: Results, verdicts: Sequence[Verdict], setting: Setting, screens: Screens | None = None) -> str:
    """Return the text of `docs/benchmarks.md`."""
    shown = [] if screens is None else ["", *_screen_part(screens)]
    parts = [*_opening(setting), "", *table(results), *shown, "", *_verdicts(verdicts), "", *_details(results), ""]
    return "\n".join(parts)


def screen_table(screens: Screens) -> list[str]:
    """Return the table of the screen."""
    return _markdown(screens.table())


def _screen_part(screens: Screens) -> list[str]:
    missed = screens.missed() or ["All of it holds."]
    return [*SCREEN_OPENING.format(pressure=screens.pressure).splitlines(), "", *screen_table(screens), "", *missed]


def _opening(setting: Setting) -> list[str]:
    others = ", ".join(f"{peer} {version_of(peer)}" for peer in setting.peers) or "none"
    return OPENING.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=commit(),
        machine=machine(),
        others=others,
        rounds=setting.rounds,
        peer_rounds=setting.peer_rounds,
    ).splitlines()


def _verdicts(verdicts: Sequence[Verdict]) -> list[str]:
    return ["## What must hold", "", "```", *(str(verdict) for verdict in verdicts), "```"]


def _details(results: Results) -> list[str]:
    return [
        "## Each way by itself",
        "",
        "An engine that can be used in several ways was measured in each; the table at the top has the best.",
        "How each one is set up is said at the top of its file in `bench/peers/` and `bench/workloads/`.",
        "",
        *ways(results),
    ]


def commit() -> str:
    """Return the measured commit, and whether the tree had other changes."""
    return _git("rev-parse", "--short", "HEAD") + (" with changes" if _git("status", "--porcelain", "src") else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def machine() -> str:
    """Return facts for comparing runs, without the name of the machine."""
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return f"{system}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
