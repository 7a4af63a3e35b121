"""Run the demo and draw its terminal output as docs/demo.svg, and a part of it as docs/demo-short.svg."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMN, LINE, MARGIN = 7.8, 17, 18  # pixels of a character, a line and the frame
WIDEST = 100
COLOURS = [  # the first pattern that matches decides
    (r"^\$ ", "#f0f6fc"),
    (r"^(task \S+ completed|completed|\[reviewer\] Approved|Merged )", "#7ee787"),
    (r"^(warning:|\[reviewer)", "#ffa657"),
    (r"^(task|branch) ", "#79c0ff"),
    (r"^\[", "#c9d1d9"),
    (r"^[╭│╰]", "#e3b341"),
]


# The lines of the short drawing.
SHORT = (
    r"\$ atomic |branch |  python3|\[(plan|worker|reviewer|fixer)|warning:|task \S+ completed|completed after|Merged "
)


def play() -> str:
    """Return the output of `atomic demo` for a new user, with standard error in order."""
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "HOME": home, "PYTHONPATH": str(ROOT / "src"), "ATOMIC_REPLAY_SPEED": "max"}
        command = [sys.executable, "-m", "atomic", "demo"]
        done = subprocess.run(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, check=True
        )
    return done.stdout.decode()


def shown(output: str) -> list[str]:
    """Return the lines of the run, the accepted commits and the built program, without
    the long report.
    """
    start = output.index("\nlook at the project") + 1
    run = output[start:].partition("\n\n")[0].replace("atomic: warning:", "warning:")
    accepted = re.search(r"^\$ atomic accept .*?(?=\n\n──)", output, re.MULTILINE | re.DOTALL)
    built = re.search(r"^╭.*?╯$", output, re.MULTILINE | re.DOTALL)
    assert accepted is not None
    assert built is not None
    run = re.sub(r"; report: \S+", "", run)  # a path of this machine
    return ["$ atomic demo", *_wrapped(run), "", *_wrapped(accepted[0]), "", *built[0].splitlines()]


def _wrapped(text: str) -> list[str]:
    lines: list[str] = []
    for line in text.splitlines():
        lines += [line] if len(line) <= WIDEST else textwrap.wrap(line, WIDEST, subsequent_indent="  ")
    return lines


def shortened(lines: list[str]) -> list[str]:
    """Return the lines that show what happens, for the README."""
    return [line for line in lines if re.match(SHORT, line)]


def drawing(lines: list[str]) -> str:
    width = MARGIN * 2 + COLUMN * max(map(len, lines))
    height = MARGIN * 2 + LINE * len(lines)
    rows = (
        f'<text x="{MARGIN}" y="{MARGIN + LINE * (at + 0.75):g}" textLength="{COLUMN * len(line):g}"'
        f' fill="{_colour(line)}">{_text(line)}</text>'
        for at, line in enumerate(lines)
        if line
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}">\n'
        "<title>A run of atomic demo in a terminal</title>\n"
        '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n'
        '<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">\n'
        + "\n".join(rows)
        + "\n</g>\n</svg>\n"
    )


def _text(line: str) -> str:
    """Escape a line, with blanks that SVG viewers do not merge."""
    return escape(line).replace(" ", "\u00a0")


def _colour(line: str) -> str:
    return next((colour for pattern, colour in COLOURS if re.match(pattern, line)), "#8b949e")


if __name__ == "__main__":
    whole = shown(play())
    (ROOT / "docs" / "demo.svg").write_text(drawing(whole), "utf-8")
    (ROOT / "docs" / "demo-short.svg").write_text(drawing(shortened(whole)), "utf-8")
