import unittest

import life


class ThePackage(unittest.TestCase):
    def test_it_says_what_it_is(self):
        self.assertIn("Game of Life", life.__doc__)
