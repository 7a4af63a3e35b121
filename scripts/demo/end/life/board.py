"""The rules. A board is a set of living cells, and a torus: each edge meets the opposite one."""

from collections import Counter

NEIGHBOURS = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if (dx, dy) != (0, 0)]


def step(alive, width, height):
    """Give the next generation of the cells, each a column and a row."""
    counts = Counter(((x + dx) % width, (y + dy) % height) for x, y in alive for dx, dy in NEIGHBOURS)
    return {cell for cell, count in counts.items() if count == 3 or (count == 2 and cell in alive)}
