import unittest

from life.board import step
from life.patterns import PICTURES, centred, pattern


class ThePatterns(unittest.TestCase):
    def test_a_glider_has_five_cells(self):
        self.assertEqual(pattern("glider"), {(1, 0), (2, 1), (0, 2), (1, 2), (2, 2)})

    def test_each_picture_is_a_rectangle(self):
        for name, picture in PICTURES.items():
            with self.subTest(name):
                self.assertEqual(len({len(row) for row in picture.split()}), 1)

    def test_a_pulsar_beats_in_threes(self):
        alive = start = centred("pulsar", 21, 21)
        for _ in range(3):
            alive = step(alive, 21, 21)
        self.assertEqual(alive, start)

    def test_the_gun_fires_a_glider_every_thirty_generations(self):
        alive = gun = pattern("gun", 2, 2)
        for _ in range(30):
            alive = step(alive, 60, 40)
        self.assertLess(gun, alive)
        self.assertEqual(len(alive - gun), 5)
