"""`python -m atomic.chat --fd N`: the engine of a screen, which holds the other end of a socket pair."""

from __future__ import annotations

import sys

# Python puts the current folder first: a stranger's `json.py` there must not be ours.
if not sys.flags.safe_path:
    del sys.path[0]

import argparse
import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from atomic.base.errors import is_debugging
from atomic.chat.connection import Wire
from atomic.chat.engine import Engine, Start


def main(words: Sequence[str] | None = None) -> None:
    """Work until the screen has gone. What a library prints reaches nobody."""
    asked = _parser().parse_args(words)
    os.set_inheritable(asked.fd, False)
    signal.signal(signal.SIGINT, _pass_over)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    if is_debugging():
        logging.basicConfig(level=logging.DEBUG)
    else:
        logging.getLogger().addHandler(logging.NullHandler())
    record = None if asked.record is None else os.path.abspath(asked.record)
    asyncio.run(_work(asked.fd, Path.cwd(), Start(asked.agent, asked.model, asked.resume, record)))


def _pass_over(number: int, frame: object) -> None:
    """Ctrl+C is a key of the screen's. Were it ignored, what we start would ignore it too."""


async def _work(fd: int, cwd: Path, start: Start) -> None:
    await Engine(await Wire.open(fd), cwd, start).run()
    os._exit(0)  # a thread that still waits for something is not waited for


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="atomic.chat")
    parser.add_argument("--fd", type=int, required=True)
    for name in ("--agent", "--model", "--resume", "--record"):
        parser.add_argument(name)
    return parser


if __name__ == "__main__":
    main()
