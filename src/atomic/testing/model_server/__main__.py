"""Run a model server from a shell: `python -m atomic.testing.model_server --script
FILE.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

import msgspec

from atomic.base.errors import AtomicError
from atomic.testing.model_server.script import ScriptFile, ScriptFileError
from atomic.testing.model_server.server import ModelServer


def main() -> int:
    """Print the address, then serve until a signal; log each call on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m atomic.testing.model_server", description="Serve a scripted model on 127.0.0.1."
    )
    parser.add_argument("--script", type=Path, metavar="FILE.json", help='for example {"scripts": {"hello": "Hello."}}')
    parser.add_argument("--port", type=int, default=0, help="default: a free port")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        file = _read(arguments.script) if arguments.script else ScriptFile()
        asyncio.run(_serve(file, arguments.port))
    except (AtomicError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _read(path: Path) -> ScriptFile:
    try:
        return msgspec.json.decode(path.read_bytes(), type=ScriptFile)
    except OSError as error:
        raise ScriptFileError(str(path), error.strerror or str(error)) from error
    except msgspec.MsgspecError as error:
        raise ScriptFileError(str(path), str(error)) from error


async def _serve(file: ScriptFile, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with ModelServer(
        file.scripts,
        default=file.default,
        side_text=file.side_text,
        toolless=file.toolless,
        models=file.models,
        port=port,
    ) as server:
        print(server.url, flush=True)
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())
