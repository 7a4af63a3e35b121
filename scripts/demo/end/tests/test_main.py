import contextlib
import io
import unittest

from life.__main__ import main


def shown(*words):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        main(words)
    return output.getvalue().splitlines()


class TheCommand(unittest.TestCase):
    def test_it_shows_the_last_generation(self):
        lines = shown("pulsar", "--width", "21", "--height", "20", "--steps", "3")
        self.assertIn("pulsar", lines[0])
        self.assertEqual(len(lines), 12)

    def test_a_pulsar_beats_in_threes(self):
        self.assertEqual(shown("pulsar", "--steps", "3")[1:], shown("pulsar", "--steps", "0")[1:])

    def test_the_gun_fires_a_glider_every_thirty_generations(self):
        self.assertIn("generation 30 · 41 cells", shown("gun", "--steps", "30")[0])

    def test_an_unknown_pattern_is_refused(self):
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            main(["gnu"])
