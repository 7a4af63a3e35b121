"""Patterns that are worth watching, as pictures: `O` lives."""

PICTURES = {
    "glider": """
.O.
..O
OOO
""",
    "acorn": """
.O.....
...O...
OO..OOO
""",
    "pulsar": """
..OOO...OOO..
.............
O....O.O....O
O....O.O....O
O....O.O....O
..OOO...OOO..
.............
..OOO...OOO..
O....O.O....O
O....O.O....O
O....O.O....O
.............
..OOO...OOO..
""",
    "gun": """
........................O...........
......................O.O...........
............OO......OO............OO
...........O...O....OO............OO
OO........O.....O...OO..............
OO........O...O.OO....O.O...........
..........O.....O.......O...........
...........O...O....................
............OO......................
""",
}


def pattern(name, left=0, top=0):
    """Give the cells of a pattern with its upper left corner there."""
    rows = PICTURES[name].split()
    return {(left + x, top + y) for y, row in enumerate(rows) for x, sign in enumerate(row) if sign == "O"}


def centred(name, width, height):
    """Give the cells of a pattern in the middle of a board."""
    rows = PICTURES[name].split()
    return pattern(name, (width - len(rows[0])) // 2, (height - len(rows)) // 2)
