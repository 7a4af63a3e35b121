"""`python -m atomic.chat --fd N`: the engine.

File descriptor N is a socket to the screen.
"""

from __future__ import annotations

import sys

# Python puts the current folder first: a `json.py` of the project must not be imported.
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
from atomic.chat.connection import ScreenConnection
from atomic.chat.engine import Engine, EngineOptions


def main(words: Sequence[str] | None = None) -> None:
    """Run the engine until the screen has gone. Output of libraries is discarded."""
    parser = argparse.ArgumentParser(prog="atomic.chat")
    parser.add_argument("--fd", type=int, required=True)
    for name in ("--agent", "--model", "--resume", "--record"):
        parser.add_argument(name)
    given = parser.parse_args(words)
    os.set_inheritable(given.fd, False)
    # Ctrl+C is a key of the screen. A handler, because SIG_IGN would be inherited by
    # children.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    if is_debugging():
        logging.basicConfig(level=logging.DEBUG)
    else:
        logging.getLogger().addHandler(logging.NullHandler())
    record = None if given.record is None else os.path.abspath(given.record)
    options = EngineOptions(given.agent, given.model, given.resume, record)

    async def work() -> None:
        await Engine(await ScreenConnection.open(given.fd), Path.cwd(), options).run()
        os._exit(0)  # do not wait for threads

    asyncio.run(work())


if __name__ == "__main__":
    main()
