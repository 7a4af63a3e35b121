"""The list of commands in the documentation is that of the parser.

To rewrite it: ATOMIC_WRITE_GOLDEN=1 .venv/bin/python -m pytest tests/docs/test_command_table.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from atomic.cli.help import EXAMPLES
from atomic.cli.verbs import GROUPS, VERBS

DOCS = Path(__file__).parents[2] / "docs"
_BEGIN = "<!-- commands: made from the table of verbs by tests/docs/test_command_table.py -->\n"
_END = "<!-- end of commands -->\n"


def table() -> str:
    """Return the commands by group, as Markdown."""
    lines: list[str] = []
    for title, verbs in GROUPS.items():
        lines += ["", f"| {title} | |", "| --- | --- |"]
        if title == "Start":
            lines.append("| `atomic [flags] [PROMPT...]` | the screen: talk to an agent, run workflows |")
            lines.append(
                '| `atomic -p "PROMPT" [flags]` | one turn of an agent, or a slash command, without the screen |'
            )
        lines += [f"| `{verb.usage.replace('|', chr(92) + '|')}` | {verb.summary} |" for verb in verbs]
    return "\n".join((*lines, "", ""))


def test_the_reference_lists_the_commands_of_the_parser() -> None:
    file = DOCS / "cli.md"
    text = file.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    expected = f"{before}{_BEGIN}{table()}{_END}{after}"
    if os.environ.get("ATOMIC_WRITE_GOLDEN"):
        file.write_text(expected, encoding="utf-8")
        text = expected
    assert text == expected


def test_the_reference_describes_every_command() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8").partition(_END)[2]
    described = {name for name in VERBS if re.search(rf"\batomic {name}\b", text)}
    assert VERBS.keys() - described <= {"chat", "version"}


def test_the_examples_of_the_help_are_commands() -> None:
    for line, _ in EXAMPLES:
        command = line.rpartition("| ")[2].split()[1]
        assert command in VERBS or command == "-p"
