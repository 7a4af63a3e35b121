import unittest

from life.board import step

GLIDER = {(1, 0), (2, 1), (0, 2), (1, 2), (2, 2)}


def after(generations, alive, width=8, height=8):
    for _ in range(generations):
        alive = step(alive, width, height)
    return alive


class TheRules(unittest.TestCase):
    def test_a_lonely_cell_dies(self):
        self.assertEqual(after(1, {(3, 3)}), set())

    def test_a_block_stays(self):
        block = {(1, 1), (2, 1), (1, 2), (2, 2)}
        self.assertEqual(after(5, block), block)

    def test_a_blinker_turns_and_turns_back(self):
        blinker = {(2, 3), (3, 3), (4, 3)}
        self.assertEqual(after(1, blinker), {(3, 2), (3, 3), (3, 4)})
        self.assertEqual(after(2, blinker), blinker)

    def test_a_glider_flies_around_the_torus_and_comes_home(self):
        self.assertEqual(after(32, GLIDER), GLIDER)
