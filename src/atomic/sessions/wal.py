"""Read SQLite's write-ahead log by hand, to see what SQLite passes over in silence.

SQLite takes the frames of a log up to the first that does not check, and forgets the rest without a word. After a kill
that is right, it was an unfinished write. But the same happens to a hundred commits behind one flipped bit, and of
those somebody must be told. The format is documented at https://sqlite.org/walformat.html.
"""

from __future__ import annotations

import struct

from atomic.sessions.database import PAGE_SIZE

_HEADER = 32
_FRAME_HEADER = 24
_FRAME = _FRAME_HEADER + PAGE_SIZE
_VERSION = 3007000
_INDEX_HEADER = struct.Struct("=IIIBBHII")  # the first part of a wal-index, in the byte order of the machine


def dropped(path: str) -> tuple[int, int]:
    """How much of the log was written for the database as it is now and is not used by SQLite: bytes and commits.

    Call it alone with the file, while a connection is open that has read something: SQLite has then decided.
    Frames that are whole and only lack their commit do not count: nobody was told that those are safe.
    """
    with open(f"{path}-wal", "rb") as file:
        log = file.read()
    rest = _unused(path, log)
    return len(rest), _commits(rest)


def pages(path: str, *, verified: bool) -> tuple[dict[int, bytes], int]:
    """The pages in a log as its last commit left them, by number from 1, and how many the database has then.

    Unlike SQLite this goes on behind a frame that does not check, which is taken or, with `verified`, passed over:
    each commit writes the page that grows, so a later frame mostly heals what an earlier one has lost. What the
    pages hold must be proved by other means.
    """
    with open(f"{path}-wal", "rb") as file:
        log = file.read()
    header, frames = log[:_HEADER], [log[at : at + _FRAME] for at in range(_HEADER, len(log) - _FRAME + 1, _FRAME)]
    # The log is written from its beginning, so its first frame is of its present life, as all are before the last.
    salts = header[16:24] if _is_whole(header) else frames[0][8:16] if frames else b""
    commits = [at for at, frame in enumerate(frames) if frame[8:16] == salts and frame[4:8] != bytes(4)]
    found: dict[int, bytes] = {}
    before = header[24:32]
    for frame in frames[: commits[-1] + 1 if commits else 0]:
        if not verified or _goes_on(frame, before, _order(header)):
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
    salts, order = header[16:24], _order(header)
    before = log[_HEADER + (used - 1) * _FRAME :][16:24] if used else header[24:32]
    if _is_unfinished(rest, salts, before, order):
        return b""
    return rest if _has_salts(rest, salts) or _goes_on(rest, before, order) else b""


def _commits(rest: bytes) -> int:
    """How many frames say that they end a transaction."""
    skip = _HEADER if len(rest) % _FRAME == _HEADER else 0  # the whole log, with a header that is damaged
    return sum(rest[at + 4 : at + 8] not in (b"", b"\0\0\0\0") for at in range(skip, len(rest), _FRAME))


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
    """Whether a frame among these is of the log's present life; those of earlier lives have other salts.

    A frame for page 0 is of no life: zeros, where something was that did not reach the disk.
    """
    for start in range(0, len(rest), _FRAME):
        header = rest[start : start + 16]
        if header[8:] == salts[: max(0, len(header) - 8)] or header[:4] == bytes(4):
            return True
    return False


def _goes_on(rest: bytes, before: bytes, order: str) -> bool:
    """Whether the next frame continues the chain, though its salts say otherwise (no checksum covers them)."""
    return len(rest) >= _FRAME and _frame_checksum(rest, before, order) == struct.unpack(">II", rest[16:24])


def _is_unfinished(rest: bytes, salts: bytes, before: bytes, order: str) -> bool:
    """Whether the rest begins with good frames of a transaction that never got its commit, and nothing new follows."""
    position = 0
    while rest[position + 8 : position + 16] == salts and _goes_on(rest[position:], before, order):
        if rest[position + 4 : position + 8] != b"\0\0\0\0":
            return False  # a commit that SQLite did not take: something is wrong
        before = rest[position + 16 : position + 24]
        position += _FRAME
    rest = rest[position:]
    return position > 0 and not _has_salts(rest, salts) and not _goes_on(rest, before, order)


def _frame_checksum(frame: bytes, before: bytes, order: str) -> tuple[int, int]:
    seed = struct.unpack(">II", before)
    return _checksum(frame[:8] + frame[_FRAME_HEADER:_FRAME], (seed[0], seed[1]), order)


def _order(header: bytes) -> str:
    return ">" if header[3] & 1 else "<"


def _checksum(data: bytes, seed: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = seed
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
