"""The game that the agents build: Nim, with its rules, a table to play at, and tests."""

from __future__ import annotations

from typing import Any

GATE = "python3 -m unittest -q"
GOAL = "Build the game of Nim: rules, and a table to play at"
RULES = '''"""The rules of Nim: who takes the last match wins."""


def take(heaps, heap, matches):
    """The heaps after a move. Raises ValueError where the move is none."""
    if not 0 <= heap < len(heaps) or not 1 <= matches <= heaps[heap]:
        raise ValueError("no such move")
    return [left - matches if place == heap else left for place, left in enumerate(heaps)]


def is_over(heaps):
    return not any(heaps)
'''
RULES_TEST = """import unittest

from nim import is_over, take


class Rules(unittest.TestCase):
    def test_a_move_takes_matches(self):
        self.assertEqual(take([3, 2], 1, 2), [3, 0])

    def test_no_more_than_there_are(self):
        with self.assertRaises(ValueError):
            take([1], 0, 2)

    def test_the_end(self):
        self.assertTrue(is_over([0, 0]))
        self.assertFalse(is_over([0, 1]))
"""
TABLE = '''"""Play Nim: each line of standard input is a move, such as `1 2` (two from the first heap)."""

import sys

from nim import is_over, take


def play(heaps, moves):
    player = 1
    for move in moves:
        heap, matches = map(int, move.split())
        heaps = take(heaps, heap - 1, matches)
        if is_over(heaps):
            return f"player {player} wins"
        player = 3 - player
    return "nobody has won"


if __name__ == "__main__":
    print(play([1, 2], sys.stdin))
'''
TABLE_TEST = """import unittest

from table import play


class Table(unittest.TestCase):
    def test_who_takes_the_last_match_wins(self):
        self.assertEqual(play([1, 2], ["1 1", "2 1", "2 1"]), "player 1 wins")
"""
FILES = {
    "1": {"nim.py": RULES, "test_nim.py": RULES_TEST},
    "2": {"table.py": TABLE, "test_table.py": TABLE_TEST},
}
TASKS: list[dict[str, Any]] = [
    {
        "id": "1",
        "title": "Write the rules of Nim",
        "description": "nim.py has take and is_over.",
        "priority": 1,
        "blocked_by": [],
        "acceptance": ["a move takes matches from one heap"],
    },
    {
        "id": "2",
        "title": "Write the table to play at",
        "description": "table.py reads moves and names the winner.",
        "priority": 2,
        "blocked_by": ["1"],
        "acceptance": ["who takes the last match wins"],
    },
]
PLAN = {"tasks": TASKS}
APPROVAL: dict[str, Any] = {"verdict": "approve", "findings": [], "summary": "It is a game."}
RESEARCH = """---
topic: nim
question: where would a game go
---

# Nim

## Answer
The repository has no game yet; `README.md` names the place. LEFT-BY-RESEARCH
"""
SPEC = """---
topic: nim
research: research/docs/nim.md
---

# Nim

## Requirements
- **R1** `nim.py` has the rules. Check: its tests.
- **R2** `table.py` reads moves and names the winner. Check: play a game. LEFT-BY-SPEC
"""
FEATURES = [
    {"category": "functional", "description": "Write the rules of Nim", "steps": ["take matches"], "passes": False},
    {"category": "functional", "description": "Write the table to play at", "steps": ["play"], "passes": False},
]
