"""Standard input, output and error as a user may leave them: closed, cut, or a terminal that must not be fooled."""

from __future__ import annotations

import os
import sys

from atomic.base.terminal import escaped_json, harmless, one_line

STDIN, STDOUT, STDERR = 0, 1, 2


def fill_gaps() -> None:
    """Open what was closed for us, or the next file that we open would be our standard output."""
    for number in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest free number, which is this one


def claim_stdout() -> int:
    """A standard output for us alone; what others in this process and its children write there goes to standard error.

    A program that reads our JSON may not find in it what a workflow's own code prints.
    """
    ours = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    sys.stdout = sys.stderr
    return ours


def json_line(data: object) -> str:
    """Return data as one line of JSON that a terminal only shows."""
    import msgspec

    return escaped_json(msgspec.json.encode(data).decode()) + "\n"


def message(text: str) -> str:
    """What is said to a person: one line; only a diff, which nobody could read so, keeps its own."""
    words, mark, diff = text.partition("\n--- ")
    return f"atomic: {one_line(words)}{harmless(mark + diff)}\n"


def screen_width() -> int | None:
    """The columns of the terminal that standard output is; None if it is none."""
    if not os.isatty(STDOUT):
        return None
    try:
        return os.get_terminal_size(STDOUT).columns or 80  # some have never been told
    except OSError:
        return 80


def tell(text: str) -> None:
    """Say something to the person, on standard error."""
    try:
        write(STDERR, message(text))
    except OSError:
        return  # nobody listens


def put(text: str) -> None:
    """Write to standard output; that its reader has gone (`| head`) is no error."""
    try:
        write(STDOUT, text)
    except BrokenPipeError:
        return


def write(number: int, text: str) -> None:
    """Write all of it, past Python's own buffers: they would fail once more when the program ends."""
    data = memoryview(text.encode("utf-8", "replace"))
    while data:
        data = data[os.write(number, data) :]


def has_terminal() -> bool:
    """Return whether there is a terminal to ask in."""
    return os.isatty(STDIN) and os.isatty(STDERR)


def confirmed(question: str) -> bool:
    """Ask for a yes at a terminal; without one the answer is no."""
    if not has_terminal():
        return False
    os.write(STDERR, question.encode())
    return os.read(STDIN, 1024).decode("utf-8", "replace").strip().casefold() in ("y", "yes")
