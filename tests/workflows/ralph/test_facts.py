"""What decides about work is in the journal: who rewrites the files of the session changes nothing, and is named."""

from __future__ import annotations

import json
from pathlib import Path

from tests.workflows.ralph.theatre import APPROVE, GOAL, PLAN, Theatre, worker, writing

FORGED = {"gates": [{"command": "true", "origin": "--verify"}], "baseline": {"true": 0}, "passed_once": ["true"]}


def forging(theatre: Theatre, name: str, text: str) -> dict[str, str]:
    """A step of an agent that rewrites a file of the session."""
    return {"sh": f"for f in {theatre.user.home}/.atomic/sessions/*/{name}; do printf '%s' '{text}' > $f; done"}


async def test_a_worker_that_rewrites_the_checks_does_not_pass_them(tmp_path: Path) -> None:
    theatre = Theatre(tmp_path)
    cheat = worker(
        "1", {"write": {"part1.txt": "x\n", "broken": ""}}, forging(theatre, "gates.json", json.dumps(FORGED))
    )
    theatre.play(PLAN, cheat, APPROVE)
    outcome = await theatre.ralph("--verify", "test ! -e broken", GOAL)
    assert outcome.status[0] == "blocked"
    [gate] = json.loads((theatre.session / "gates.json").read_text())["gates"]
    assert gate["command"] == "test ! -e broken"
    assert "given by `--verify`" not in theatre.report or "`true`" not in theatre.report
    told = [line for line in outcome.warnings.splitlines() if "gates.json" in line]
    assert len(told) == 1
    assert "Only the journal counts" in told[0]
    assert "`gates.json`" in theatre.report


async def test_turns_and_evidence_that_somebody_rewrites_are_not_believed_at_a_resume(tmp_path: Path) -> None:
    theatre = Theatre(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await theatre.ralph("--max-iterations", "1", GOAL)).status == ("paused", "max_iterations", 6)
    proof = theatre.evidence("1")
    (theatre.session / "iterations.json").write_text('{"turns": 0, "open": []}')
    (theatre.session / "evidence" / "1.json").write_text(json.dumps({**proof, "changed_files": ["invented.py"]}))
    outcome = await theatre.resume()
    assert outcome.status == ("paused", "max_iterations", 6)
    assert theatre.cast == ["planner 1", "worker 1 1"]
    assert "evidence/1.json and iterations.json" in outcome.warnings
    assert theatre.evidence("1") == proof
    assert json.loads((theatre.session / "iterations.json").read_text())["turns"] == 1
    assert "invented.py" not in theatre.report
    assert (await theatre.resume("--max-iterations", "9")).status == ("completed", "done", 0)
    assert "evidence/1.json" in theatre.report  # it is not forgotten
