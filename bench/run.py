"""Measure Atomic, hand-written code and other engines; exit 1 if a required bound is missed.

.venv/bin/python bench/run.py [--only chain,loop] [--rounds 5] [--no-peers] [--quick] [--write docs/benchmarks.md]
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from environments import HOME, PEERS, InstallError, install
from harness import JobError, run_rounds
from musts import Verdict, judge
from plan import ENGINES, JOBS
from report import Setting, page, screen_table, table
from results import Results
from screens import measure_screens


def main() -> int:
    """Measure, print, judge."""
    options = _options()
    engines = [engine for engine in options.engines if not (options.no_peers and engine in PEERS)]
    peers = [engine for engine in engines if engine in PEERS]
    rounds, peer_rounds = (2, 1) if options.quick else (options.rounds, min(options.rounds, options.peer_rounds))
    results = Results()
    try:
        _install(peers)
        run_rounds(results, options.only, engines, rounds=rounds, peer_rounds=peer_rounds, say=_say)
    except (InstallError, JobError) as error:
        print(error, file=sys.stderr)
        return 1
    screens = measure_screens(_say) if options.screen else None
    _say("")
    verdicts = judge(results)
    _print(results, verdicts)
    if screens is not None:
        print("", *screen_table(screens), "", *screens.missed(), sep="\n")
    if options.write:
        options.write.parent.mkdir(exist_ok=True)
        options.write.write_text(page(results, verdicts, Setting(rounds, peer_rounds, peers), screens))
    return 1 if any(verdict.missed for verdict in verdicts) or (screens is not None and screens.missed()) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="JOBS", type=_some_of(JOBS), default=list(JOBS), help=",".join(JOBS))
    parser.add_argument("--engines", type=_some_of(ENGINES), default=list(ENGINES), help=",".join(ENGINES))
    parser.add_argument("--rounds", type=int, default=5, help="how often each job runs (default 5)")
    parser.add_argument("--peer-rounds", type=int, default=3, help="how often the other engines take part (default 3)")
    parser.add_argument("--no-peers", action="store_true", help="only Atomic and the bounds; installs nothing")
    parser.add_argument("--quick", action="store_true", help="two rounds, one with the others: a first impression")
    parser.add_argument(
        "--screen", action=argparse.BooleanOptionalAction, default=True, help="the screen too: three minutes"
    )
    parser.add_argument("--write", metavar="FILE", type=Path, help="write the table to this Markdown file too")
    return parser.parse_args()


def _some_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        unknown = sorted(set(text.split(",")) - set(known))
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)} (known: {', '.join(known)})")
        return [name for name in known if name in text.split(",")]

    return parse


def _install(peers: list[str]) -> None:
    HOME.mkdir(exist_ok=True)
    for peer in peers:
        install(peer)


def _print(results: Results, verdicts: list[Verdict]) -> None:
    print(*table(results), "", *verdicts, "", sep="\n")
    missed = sum(verdict.missed for verdict in verdicts)
    left_out = sum(verdict.number is None for verdict in verdicts)
    print(f"{missed} of {len(verdicts)} musts missed" + (f", {left_out} not run" if left_out else ""))


def _say(text: str) -> None:
    """Show progress on one line of a terminal; print nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
