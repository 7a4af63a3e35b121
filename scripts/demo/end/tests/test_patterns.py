import unittest

from life.patterns import PICTURES, centred, pattern


class ThePatterns(unittest.TestCase):
    def test_a_glider_has_five_cells(self):
        self.assertEqual(pattern("glider"), {(1, 0), (2, 1), (0, 2), (1, 2), (2, 2)})

    def test_each_picture_is_a_rectangle(self):
        for name, picture in PICTURES.items():
            with self.subTest(name):
                self.assertEqual(len({len(row) for row in picture.split()}), 1)

    def test_a_centred_pattern_is_in_the_middle(self):
        self.assertEqual(centred("glider", 9, 5), pattern("glider", 3, 1))
