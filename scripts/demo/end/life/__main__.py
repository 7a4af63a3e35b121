"""Watch the Game of Life: python3 -m life gun."""

import argparse
import sys
import time

from life.board import step
from life.patterns import PICTURES, centred
from life.picture import draw, framed

HOME, HIDE, SHOW = "\x1b[H\x1b[J", "\x1b[?25l", "\x1b[?25h"


def read(words):
    parser = argparse.ArgumentParser(prog="life", description="Conway's Game of Life, in a terminal.")
    parser.add_argument("pattern", nargs="?", default="gun", choices=sorted(PICTURES), help="what to begin with")
    parser.add_argument("--width", type=int, default=64, help="columns of cells")
    parser.add_argument("--height", type=int, default=36, help="rows of cells, two in each line")
    parser.add_argument("--steps", type=int, default=500, help="how many generations")
    parser.add_argument("--delay", type=float, default=0.05, help="seconds between two of them")
    parser.add_argument("--still", action="store_true", help="show the last one only")
    return parser.parse_args(words)


def frame(options, alive, generation):
    title = f"{options.pattern} · generation {generation} · {len(alive)} cells"
    return framed(draw(alive, options.width, options.height), options.width, title)


def main(words=None):
    options = read(words)
    alive = centred(options.pattern, options.width, options.height)
    moving = not options.still and sys.stdout.isatty()
    for generation in range(options.steps):
        if moving:
            print(HOME + frame(options, alive, generation), flush=True)
            time.sleep(options.delay)
        alive = step(alive, options.width, options.height)
    print((HOME if moving else "") + frame(options, alive, options.steps))


if __name__ == "__main__":
    try:
        print(HIDE if sys.stdout.isatty() else "", end="")
        main()
    except KeyboardInterrupt:
        pass
    finally:
        print(SHOW if sys.stdout.isatty() else "", end="")
