import unittest

from life.picture import draw, framed


class ThePicture(unittest.TestCase):
    def test_two_rows_of_cells_are_one_line(self):
        self.assertEqual(draw({(0, 0), (1, 1), (2, 0), (2, 1)}, 3, 2), ["▀▄█"])

    def test_an_empty_board_is_empty_lines(self):
        self.assertEqual(draw(set(), 5, 4), ["", ""])

    def test_all_lines_of_a_frame_are_equally_wide(self):
        lines = framed(["▀▄█", ""], 12, "glider").split("\n")
        self.assertEqual({len(line) for line in lines}, {14})
        self.assertIn("glider", lines[0])

    def test_the_last_row_of_an_odd_board_is_drawn(self):
        self.assertEqual(draw({(0, 2), (1, 2)}, 2, 3), ["", "▀▀"])
