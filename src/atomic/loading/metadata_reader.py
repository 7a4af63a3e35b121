"""Read the metadata of workflow files within limits.

`ast.parse` cannot be interrupted, and some texts take it minutes and gigabytes. So a
long file is read by a child process, which can be killed.
"""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import msgspec

from atomic.base.errors import signal_name
from atomic.loading import metadata
from atomic.loading.metadata import (
    Metadata,
    Remark,
    WrittenTool,
    fallback_metadata,
    read_metadata,
    read_tools,
)

SHORT = 32 * 1024  # bytes; a file of this size takes at most a tenth of a second
CPU_SECONDS = 5  # for one file
FOLDER_CPU_SECONDS = 15  # for all long files of one folder
WALL_SECONDS = 30.0
MEMORY = 1024 * 1024 * 1024  # bytes

_OUT_OF_MEMORY = 77  # exit code of the child
_PROGRAM = f"""
import resource, sys, time
folder, module, seconds, memory, name, *more = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
# The hard limit is higher, so that the signal is SIGXCPU and not SIGKILL.
resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
sys.path.append(folder)
import importlib.util, msgspec
spec = importlib.util.spec_from_file_location("metadata", module)
metadata = sys.modules["metadata"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(metadata)
read = getattr(metadata, name)
try:
    result = read(sys.stdin.buffer.read(), *more)
    answer = msgspec.msgpack.encode((result, time.process_time()))
except MemoryError:
    sys.exit({_OUT_OF_MEMORY})
sys.stdout.buffer.write(answer)
"""

ResultT = TypeVar("ResultT")


class MetadataReader:
    """Reads the files of one folder.

    Its long files share one budget of processor time.
    """

    def __init__(self) -> None:
        self._left = float(FOLDER_CPU_SECONDS)

    def metadata(self, source: bytes, stem: str) -> Metadata:
        """Return the metadata of a file.

        With a fatal remark if the file exceeds a limit.
        """
        if len(source) <= SHORT:
            return read_metadata(source, stem)
        found = self._read("read_metadata", source, stem, answer=tuple[Metadata, float])
        return fallback_metadata(stem, found) if isinstance(found, Remark) else found

    def tools(self, source: bytes) -> list[WrittenTool] | Remark:
        """Return the tools that a file defines, or the reason why it cannot be read."""
        if len(source) <= SHORT:
            return read_tools(source)
        return self._read("read_tools", source, answer=tuple[list[WrittenTool] | Remark, float])

    def _read(
        self, function: str, source: bytes, *arguments: str, answer: type[tuple[ResultT, float]]
    ) -> ResultT | Remark:
        """Call a function of `metadata` in a child; `answer` is the type of its result and
        of the time that it took.
        """
        if self._left <= 0:
            return _fatal(
                f"this file was not read: the large files of its folder take more than {FOLDER_CPU_SECONDS} s; "
                "make them smaller"
            )
        seconds = math.ceil(min(CPU_SECONDS, self._left))
        try:
            encoded = _ask_child(seconds, source, function, *arguments)
        except _ChildError as error:
            self._left -= seconds
            return _fatal(str(error))
        result, used = msgspec.msgpack.decode(encoded, type=answer)
        self._left -= used
        return result


class _ChildError(Exception):
    """The child did not answer."""


def _fatal(reason: str) -> Remark:
    return Remark(1, reason, fatal=True)


def _ask_child(seconds: int, source: bytes, function: str, *arguments: str) -> bytes:
    """Return the answer of the child and its processor time as msgpack.

    Raise _ChildError.
    """
    folder = str(Path(msgspec.__file__).parents[1])
    words = [folder, str(metadata.__file__), str(seconds), str(MEMORY), function, *arguments]
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, *words],
            input=source,
            capture_output=True,
            timeout=WALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        reason = f"this file was not read within {WALL_SECONDS:g} s: try again when the machine is less busy"
        raise _ChildError(reason) from error
    except OSError as error:
        raise _ChildError(f"this file was not read, because Python did not start: {error.strerror}") from error
    if done.returncode == 0:
        return done.stdout
    raise _ChildError(_reason(done.returncode, done.stderr, seconds))


def _reason(code: int, stderr: bytes, seconds: int) -> str:
    if code == -signal.SIGXCPU:
        return f"this file takes more than {seconds} s to read: make it smaller"
    if code == _OUT_OF_MEMORY:
        return f"this file takes more than {MEMORY // 1024**3} GB of memory to read: make it smaller"
    if code < 0:
        how = f"ended with {signal_name(-code)}"
        return f"Python {how} while it read this file: make its expressions smaller and less nested"
    lines = stderr.decode("utf-8", "replace").strip().splitlines() or [f"Python ended with {code}"]
    return f"this file could not be read: {lines[-1]}"
