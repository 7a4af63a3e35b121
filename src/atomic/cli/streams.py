"""Write to standard output and error, which may be closed, cut off, or a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress

from atomic.base.terminal import escaped_json, harmless, one_line

STDIN = 0
STDOUT = 1
STDERR = 2


def fill_gaps() -> None:
    """Open closed standard streams, or the next opened file would get the number of one
    of them.
    """
    for number in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one


def claim_stdout() -> int:
    """Return a private copy of standard output, and send all other output to standard
    error.

    A program that reads our JSON, or the result of a run, must not find output of a
    workflow's code in it.
    """
    ours = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    sys.stdout = sys.stderr
    return ours


@contextmanager
def claimed_stdout() -> Generator[int]:
    """Claim standard output, and give it back at the end."""
    before = sys.stdout
    ours = claim_stdout()
    try:
        yield ours
    finally:
        os.dup2(ours, STDOUT)
        os.close(ours)
        sys.stdout = before


def json_line(data: object) -> str:
    """Return data as one line of JSON, without characters that a terminal obeys."""
    import msgspec

    return escaped_json(msgspec.json.encode(data).decode()) + "\n"


def message(text: str) -> str:
    """Return a message for the user as one line; a diff in it keeps its lines."""
    sentence, mark, diff = text.partition("\n--- ")
    return f"atomic: {one_line(sentence)}{harmless(mark + diff)}\n"


def screen_width(number: int = STDOUT) -> int | None:
    """Return the columns of the terminal at standard output, or at another file
    descriptor. None without a terminal.
    """
    if not os.isatty(number):
        return None
    try:
        return os.get_terminal_size(number).columns or 80  # some terminals report 0
    except OSError:
        return 80


def tell(text: str) -> None:
    """Print a message on standard error."""
    try:
        write(STDERR, message(text))
    except OSError:
        return  # standard error is closed


def put(text: str) -> None:
    """Write to standard output. A reader that has left (`| head`) is not an error."""
    try:
        write(STDOUT, text)
    except BrokenPipeError:
        return


def put_bytes(data: bytes) -> None:
    """Write bytes to standard output as they are; not for a terminal."""
    try:
        _write_all(STDOUT, data)
    except BrokenPipeError:
        return


def put_table(rows: Iterable[Sequence[str]], *, empty: str = "") -> None:
    """Print rows in aligned columns, cut at the width of the terminal.

    `empty` without rows.
    """
    from atomic.base.text import table

    lines = table(([one_line(cell) for cell in row] for row in rows), screen_width())
    put("".join(f"{line}\n" for line in lines) or empty)


def write(number: int, text: str) -> None:
    """Write all of a text without Python's buffers, which would fail again at exit."""
    _write_all(number, text.encode("utf-8", "replace"))


def _write_all(number: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(number, left) :]


def readable(argument: str) -> str:
    """Return an argument without the surrogates that replace bytes which are not UTF-8."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def has_terminal() -> bool:
    """Return whether questions can be asked: standard input and error are terminals."""
    return os.isatty(STDIN) and os.isatty(STDERR)


def forget_typed_text() -> None:
    """Make text that was typed before a question not answer it."""
    import termios

    with suppress(termios.error):
        termios.tcflush(STDIN, termios.TCIFLUSH)


def confirmed(question: str) -> bool:
    """Ask for a yes at a terminal; without a terminal the answer is no."""
    if not has_terminal():
        return False
    forget_typed_text()
    os.write(STDERR, question.encode())
    try:
        answer = os.read(STDIN, 4096).decode("utf-8", "replace")
    except OSError:  # the terminal was closed
        return False
    return answer.strip().casefold() in ("y", "yes")
