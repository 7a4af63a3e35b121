"""Reads SQLite's write-ahead log, to find what SQLite ignores silently.

SQLite uses the frames of a log up to the first one with a wrong checksum, and drops the
rest without an error. After a kill that is right: the write was unfinished. But one
flipped bit drops a hundred commits in the same way, and the user must know of that. The
format is documented at https://sqlite.org/walformat.html.
"""

from __future__ import annotations

import struct

from atomic.sessions.durability import PAGE_SIZE

_HEADER = 32
_FRAME_HEADER = 24
_FRAME = _FRAME_HEADER + PAGE_SIZE
_VERSION = 3007000
_INDEX_HEADER = struct.Struct("=IIIBBHII")  # the first part of a wal-index, in the byte order of the machine


def dropped(path: str) -> tuple[int, int]:
    """Return the bytes and commits of the current log that SQLite does not use.

    The caller has exclusive access and an open connection that has read something, so
    that SQLite has read the log. Intact frames without a commit do not count: their
    write was never reported as done.
    """
    with open(f"{path}-wal", "rb") as file:
        log = file.read()
    rest = _unused(path, log)
    skip = _HEADER if len(rest) % _FRAME == _HEADER else 0  # the whole log with its damaged header
    commits = sum(rest[at + 4 : at + 8] not in (b"", b"\0\0\0\0") for at in range(skip, len(rest), _FRAME))
    return len(rest), commits


def pages(path: str, *, verified: bool) -> tuple[dict[int, bytes], int]:
    """Return the pages of a log after its last commit, by number from 1, and their
    total.

    Unlike SQLite, continue after a frame with a wrong checksum, which is used or, with
    `verified`, skipped: each commit writes the last page of a table again, so a later
    frame mostly repairs a lost one. The contents of the pages must be proved by other
    means.
    """
    with open(f"{path}-wal", "rb") as file:
        log = file.read()
    header = log[:_HEADER]
    frames = [log[at : at + _FRAME] for at in range(_HEADER, len(log) - _FRAME + 1, _FRAME)]
    # The log is rewritten from its start, so its first frame has the current salts.
    salts = b""
    if _is_whole(header):
        salts = header[16:24]
    elif frames:
        salts = frames[0][8:16]
    commits = [at for at, frame in enumerate(frames) if frame[8:16] == salts and frame[4:8] != bytes(4)]
    found: dict[int, bytes] = {}
    before = header[24:32]
    for frame in frames[: commits[-1] + 1 if commits else 0]:
        if not verified or _continues(frame, before, _order(header)):
            found[int.from_bytes(frame[:4], "big")] = frame[_FRAME_HEADER:]
        before = frame[16:24]
    return found, int.from_bytes(frames[commits[-1]][4:8], "big") if commits else 0


def _unused(path: str, log: bytes) -> bytes:
    header = log[:_HEADER]
    if not _is_whole(header):
        return log
    used = _used_frames(path)
    if used is None:
        return b""
    rest = log[_HEADER + used * _FRAME :]
    salts = header[16:24]
    order = _order(header)
    before = log[_HEADER + (used - 1) * _FRAME :][16:24] if used else header[24:32]
    if _is_unfinished(rest, salts, before, order):
        return b""
    return rest if _has_salts(rest, salts) or _continues(rest, before, order) else b""


def _is_whole(header: bytes) -> bool:
    if len(header) < _HEADER or header[:3] != b"\x37\x7f\x06" or header[3] not in (0x82, 0x83):
        return False
    version, page_size = struct.unpack(">II", header[4:12])
    checksum = _checksum(header[:24], (0, 0), _order(header))
    return (version, page_size) == (_VERSION, PAGE_SIZE) and checksum == struct.unpack(">II", header[24:32])


def _used_frames(path: str) -> int | None:
    with open(f"{path}-shm", "rb") as file:
        index = file.read(_INDEX_HEADER.size)
    if len(index) < _INDEX_HEADER.size:
        return None
    version, _, _, ready, _, _, used, _ = _INDEX_HEADER.unpack(index)
    return used if version == _VERSION and ready else None


def _has_salts(rest: bytes, salts: bytes) -> bool:
    """Return whether a frame has the current salts; frames of older logs have others.

    A frame for page 0 counts too: zeros in place of data that did not reach the disk.
    """
    for start in range(0, len(rest), _FRAME):
        header = rest[start : start + 16]
        if header[8:] == salts[: max(0, len(header) - 8)] or header[:4] == bytes(4):
            return True
    return False


def _continues(rest: bytes, before: bytes, order: str) -> bool:
    """Return whether the next frame continues the chain, whatever its salts (no
    checksum covers them).
    """
    if len(rest) < _FRAME:
        return False
    checksum = _checksum(rest[:8] + rest[_FRAME_HEADER:_FRAME], struct.unpack(">II", before), order)
    return checksum == struct.unpack(">II", rest[16:24])


def _is_unfinished(rest: bytes, salts: bytes, before: bytes, order: str) -> bool:
    """Return whether the rest starts with good frames of an uncommitted transaction,
    and nothing current follows.
    """
    position = 0
    while rest[position + 8 : position + 16] == salts and _continues(rest[position:], before, order):
        if rest[position + 4 : position + 8] != b"\0\0\0\0":
            return False  # SQLite should have used this commit
        before = rest[position + 16 : position + 24]
        position += _FRAME
    rest = rest[position:]
    return position > 0 and not _has_salts(rest, salts) and not _continues(rest, before, order)


def _order(header: bytes) -> str:
    return ">" if header[3] & 1 else "<"


def _checksum(data: bytes, seed: tuple[int, ...], order: str) -> tuple[int, int]:
    first, second = seed
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
