"""Read a workflow file's metadata within limits. A long file is read by a child process, which can be ended.

`ast.parse` cannot be interrupted, and some texts take it minutes and gigabytes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from atomic.workflows import metadata
from atomic.workflows.metadata import (
    Metadata,
    Remark,
    WrittenTool,
    fallback_metadata,
    read_metadata,
    read_tools,
)

SHORT = 32 * 1024  # bytes that are read in this process: at worst a tenth of a second
CPU_SECONDS = 5
WALL_SECONDS = 30.0
MEMORY = 1024 * 1024 * 1024  # bytes

_TOO_MUCH = Remark(
    1, f"this takes more than {CPU_SECONDS} seconds or {MEMORY // 1024**3} GB to read: make it smaller", fatal=True
)
_PROGRAM = """
import resource, sys
folder, module, seconds, memory, name, *more = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
sys.path.append(folder)
import importlib.util, msgspec
spec = importlib.util.spec_from_file_location("metadata", module)
metadata = sys.modules["metadata"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(metadata)
read = getattr(metadata, name)
sys.stdout.buffer.write(msgspec.msgpack.encode(read(sys.stdin.buffer.read(), *more)))
"""


def read_metadata_of(source: bytes, stem: str) -> Metadata:
    """Return what a file says about itself. One that cannot be read within the limits has a fatal remark."""
    if len(source) <= SHORT:
        return read_metadata(source, stem)
    said = _read_in_child(source, "read_metadata", stem)
    return fallback_metadata(stem, _TOO_MUCH) if said is None else msgspec.msgpack.decode(said, type=Metadata)


def read_tools_of(source: bytes) -> list[WrittenTool] | Remark:
    """Return the tools that a file defines, or what keeps it from being read."""
    if len(source) <= SHORT:
        return read_tools(source)
    said = _read_in_child(source, "read_tools")
    if said is None:
        return _TOO_MUCH
    return msgspec.msgpack.decode(said, type=list[WrittenTool] | Remark)


def _read_in_child(source: bytes, function: str, *words: str) -> bytes | None:
    """Return what a function of `metadata` says, as msgpack; None where it passes a limit."""
    folder = str(Path(msgspec.__file__).parents[1])
    limits = (str(CPU_SECONDS), str(MEMORY))
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, folder, str(metadata.__file__), *limits, function, *words],
            input=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=WALL_SECONDS,
            check=True,
        )
    except (subprocess.SubprocessError, OSError):
        return None
    return done.stdout
