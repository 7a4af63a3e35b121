"""Record the demo: Claude Code on the scripted model works, `atomic run --record` records.

The model's answers are in this file. The run begins with the files in scripts/demo/start/
and writes those in scripts/demo/end/, with faults that it has to find. The recording is
stored with the workflow of the demo; review the difference before you commit it.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from atomic.cli.demo import PROJECT, RECORDING, identity, make_project, python_name
from atomic.loading.catalog import builtin_workflows
from atomic.testing import Call, ModelServer, Pause, Say, Think, Tokens, claude_env

ROOT = Path(__file__).resolve().parents[1]
START, FILES = (Path(__file__).parent / "demo" / name for name in ("start", "end"))
LONGEST_PAUSE = 0.16  # seconds
TESTS = "python3 -m unittest -q"

# The faults: the right line, and the line that is written first.
WRAPPED = "Counter(((x + dx) % width, (y + dy) % height) for x, y in alive for dx, dy in NEIGHBOURS)"
ENDLESS = "Counter((x + dx, y + dy) for x, y in alive for dx, dy in NEIGHBOURS)"
ALL_ROWS = "range(0, height, 2)"
EVEN_ROWS = "range(0, height - 1, 2)"
ODD_TEST = """
    def test_the_last_row_of_an_odd_board_is_drawn(self):
        self.assertEqual(draw({(0, 2), (1, 2)}, 2, 3), ["", "▀▀"])
"""
FIRST = {
    "life/board.py": (WRAPPED, ENDLESS),
    "life/picture.py": (ALL_ROWS, EVEN_ROWS),
    "tests/test_picture.py": (ODD_TEST, ""),
}

PLAN = {
    "tasks": [
        {
            "id": "1",
            "title": "Add the rules of Life on a torus",
            "description": "life/board.py: `step(alive, width, height)` gives the next generation of a set of cells,"
            " each (column, row). The board is a torus: each edge meets the opposite one. Tests in"
            " tests/test_board.py.",
            "acceptance": [
                "a block stays, a blinker turns in two generations",
                "a glider on an 8 × 8 board is back at its place after 32 generations",
            ],
        },
        {
            "id": "2",
            "title": "Add well-known patterns",
            "description": "life/patterns.py: glider, acorn, pulsar and Gosper's gun as pictures of text,"
            " `pattern(name, left, top)` and `centred(name, width, height)`. Tests in tests/test_patterns.py.",
            "blocked_by": ["1"],
            "acceptance": ["a pulsar repeats after 3 generations", "the gun has fired a glider after 30"],
        },
        {
            "id": "3",
            "title": "Draw a board with half blocks",
            "description": "life/picture.py: `draw(alive, width, height)` gives lines of text, two rows of cells in"
            " each; `framed(lines, width, title)` puts a frame around them. Tests in tests/test_picture.py.",
            "acceptance": ["every cell of the board can be seen, whatever its size"],
        },
        {
            "id": "4",
            "title": "Add the command that plays it",
            "description": "life/__main__.py: `python3 -m life [PATTERN]` with --width, --height, --steps, --delay and"
            " --still; it moves in a terminal and shows the last generation elsewhere. Tests in tests/test_main.py; how"
            " to run it in README.md.",
            "blocked_by": ["1", "2", "3"],
            "acceptance": ["`python3 -m life gun --steps 30 --still` shows 41 cells", "an unknown pattern is refused"],
        },
    ]
}
FOUND = {
    "verdict": "request_changes",
    "findings": [
        {
            "title": "The last row of a board with an odd height is not drawn",
            "body": "`draw` goes over `range(0, height - 1, 2)`, which ends before the last row if the height is odd:"
            " draw({(0, 2)}, 1, 3) gives one empty line, and the living cell in row 2 is not seen. Task 3 says that"
            " every cell can be seen, whatever the size. Go over `range(0, height, 2)`; a row below the board has no"
            " cells. No test has an odd height: add one.",
            "priority": 1,
            "location": "life/picture.py:11",
            "confidence": 0.98,
        },
        {
            "title": "--width 0 ends with a traceback",
            "body": "`step` divides by the width. A line that says what is allowed would be kinder.",
            "priority": 3,
            "location": "life/__main__.py:17",
            "confidence": 0.9,
        },
    ],
    "summary": "The rules, the patterns and the command do what they should. One row of odd boards is lost.",
}
APPROVED: dict[str, Any] = {
    "verdict": "approve",
    "findings": [],
    "summary": "The last row is drawn, a test with an odd height proves it, and nothing else has changed.",
}


# Answers of the model


def script_of(prompt: str) -> str | None:
    """Return the script for a prompt; a reviewer that gets older findings is the second."""
    head = re.match(r"\[atomic role=(\w+)(?: task=(\S+))? attempt=(\d+)\]", prompt)
    if head is None:
        return None
    role, task, attempt = head.groups()
    if role == "reviewer":
        return "review-2" if "Findings of the last round" in prompt else "review-1"
    return f"{role}-{task}-{attempt}" if task else role


class Writer:
    """Builds the tool calls of an agent that works in the project."""

    def __init__(self, project: Path) -> None:
        self._project = project

    def look_around(self) -> list[Call]:
        return [Call("Glob", {"pattern": "**/*.py"}), self.read("README.md"), self.read("tests/test_package.py")]

    def write(self, name: str) -> Call:
        text = (FILES / name).read_text("utf-8")
        right, wrong = FIRST.get(name, ("", ""))
        assert right in text, name
        return Call(
            "Write", {"file_path": str(self._project / name), "content": text.replace(right, wrong) if right else text}
        )

    def read(self, name: str) -> Call:
        return Call("Read", {"file_path": str(self._project / name)})

    def edit(self, name: str, old: str, new: str) -> Call:
        return Call("Edit", {"file_path": str(self._project / name), "old_string": old, "new_string": new})

    def run(self, command: str, why: str) -> Call:
        return Call("Bash", {"command": command, "description": why})

    def commit(self, message: str, *names: str) -> Call:
        return self.run(
            f"git add {' '.join(names)} && git commit -q -m '{message}' && git log --oneline -1", "Commit it"
        )


def turn(thought: str, *words: Any, pause: float = 0.5, tokens: int = 400) -> list[Any]:
    """Return one answer of the model: it thinks, pauses, then writes or calls a tool."""
    return [Pause(pause), Think(thought), Pause(pause / 2), *words, Tokens(input=900, output=tokens, cached=14_000)]


def said(text: str, tokens: int = 60) -> list[Any]:
    return [Pause(0.3), Say(text), Tokens(input=600, output=tokens, cached=15_000)]


def scripts(project: Path) -> dict[str, Any]:
    w = Writer(project)
    return {
        "planner": [
            turn("What is there already?", *w.look_around()),
            turn(
                "Rules, patterns, pictures, a command: four parts, the command last.",
                Call("mcp__atomic__submit_plan", PLAN), pause=0.8, tokens=900,
            ),
            said("Four tasks: the rules first, the command that plays it last."),
        ],
        "worker-1-1": [
            turn("A set of cells, and a count of neighbours.", w.write("life/board.py"), tokens=350),
            turn("Block, blinker, and a glider that flies around.", w.write("tests/test_board.py"), tokens=600),
            turn("That is it.", w.commit("Add the rules of Life", "life/board.py", "tests/test_board.py")),
            said("The rules are there, with tests; all of them pass."),
        ],
        "worker-1-2": [
            turn("The glider did not come home: neighbours go over the edge.", w.read("life/board.py")),
            turn("They have to wrap.", w.edit("life/board.py", ENDLESS, WRAPPED)),
            turn("This time I run them.", w.run(TESTS, "Run the tests")),
            turn("Green.", w.commit("Let neighbours wrap around the edges", "life/board.py")),
            said("Cells at an edge now have neighbours on the other side: the glider comes home."),
        ],
        "worker-2-1": [
            turn("Pictures are easier to check than numbers.", w.write("life/patterns.py"), tokens=700),
            turn("Each is proven by what it does.", w.write("tests/test_patterns.py"), tokens=500),
            turn("Let us see.", w.run(TESTS, "Run the tests")),
            turn("Green.", w.commit("Add patterns worth watching", "life/patterns.py", "tests/test_patterns.py")),
            said("Glider, acorn, pulsar and gun are there."),
        ],
        "worker-3-1": [
            turn("Half blocks make the cells square.", w.write("life/picture.py"), tokens=400),
            turn("Two rows, an empty board, a frame.", w.write("tests/test_picture.py"), tokens=350),
            turn("Let us see.", w.run(TESTS, "Run the tests")),
            turn("Green.", w.commit("Draw a board with half blocks", "life/picture.py", "tests/test_picture.py")),
            said("A board is drawn with two rows of cells in each line."),
        ],
        "worker-4-1": [
            turn("It moves in a terminal only.", w.write("life/__main__.py"), tokens=900),
            turn("Through its own door.", w.write("tests/test_main.py"), tokens=450),
            turn("How to run it.", w.read("README.md"), w.write("README.md"), tokens=150),
            turn("Now look at it.", w.run(f"{TESTS} && python3 -m life gun --steps 30 --still", "Look at it")),
            turn("A glider!", w.commit("Add the command that plays it", "life/__main__.py", "tests", "README.md")),
            said("`python3 -m life gun` plays it."),
        ],
        "review-1": [
            turn(
                "range(0, height - 1, 2): what about an odd height?",
                w.run("python3 -c 'from life.picture import draw; print(draw({(0, 2)}, 1, 3))'", "Draw an odd board"),
                pause=0.9,
            ),
            turn("The cell is not there.", w.run("python3 -m life glider --width 0 --steps 1", "Try the limits")),
            turn("One that blocks, one to report.", Call("mcp__atomic__submit_review", FOUND), tokens=500),
            said("The last row of odd boards is lost; that must be mended."),
        ],
        "fixer-fix-1-1-1": [
            turn("The reviewer is right.", w.read("life/picture.py"), w.read("tests/test_picture.py")),
            turn("First a test that fails.", w.edit("tests/test_picture.py", *_with_odd_test())),
            turn("Does it?", w.run(f"{TESTS}; true", "See it fail")),
            turn("It does. Now the last row.", w.edit("life/picture.py", EVEN_ROWS, ALL_ROWS)),
            turn("And now?", w.run(TESTS, "See it pass")),
            turn("Green.", w.commit("Draw the last row of an odd board", "life/picture.py", "tests/test_picture.py")),
            said("The last row is drawn, and a test holds it."),
        ],
        "review-2": [
            turn(
                "Is it really gone?",
                w.run("python3 -c 'from life.picture import draw; print(draw({(0, 2)}, 1, 3))'", "Draw an odd board"),
            ),
            turn("It is, with a test.", Call("mcp__atomic__submit_review", APPROVED), tokens=120),
            said("Approved."),
        ],
    }  # fmt: skip


def _with_odd_test() -> tuple[str, str]:
    """Return the end of the first test file, and its replacement with one more test."""
    last = '        self.assertIn("glider", lines[0])\n'
    return last, last + ODD_TEST


# The run


async def record(kept: Path) -> None:
    """Record the run; replace the file only if everything succeeded."""
    definition = next(one for one in builtin_workflows() if one.demo is not None)
    demo = definition.demo
    assert demo is not None
    assert python_name() == "python3", "the recorded commands use python3"
    with tempfile.TemporaryDirectory(prefix="record-demo-") as temporary:
        folder = Path(temporary).resolve()  # noqa: ASYNC240
        file = folder / kept.name
        project = folder / "project"
        home = folder / "home"
        home.mkdir()
        write_start(Path(demo.folder) / PROJECT)
        await make_project(demo, project)
        verify = [word for gate in demo.config["verify"] for word in ("--verify", gate.replace("{python}", "python3"))]
        words = ("run", definition.name, "--agent", "claude", "--record", str(file), *verify, demo.prompt)
        async with ModelServer(scripts(project), named=script_of, default="(no script)") as server:
            env = {**claude_env(server, home), **identity(), "PYTHONPATH": str(ROOT / "src")}
            process = await asyncio.create_subprocess_exec(sys.executable, "-m", "atomic", *words, cwd=project, env=env)
            code = await process.wait()
        assert code == 0, f"the run ended with {code}"
        for name in ("life", "tests", "README.md"):
            assert _is_as_planned(FILES / name, project / name), f"{name} is not what scripts/demo/end has"
        for line in settled(file, project, folder):
            print(line)
        await asyncio.to_thread(shutil.copyfile, file, kept)


def write_start(file: Path) -> None:
    """Write the files that the run begins with into the package."""
    names = sorted(path for path in START.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    texts = {path.relative_to(START).as_posix(): path.read_text("utf-8") for path in names}
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(texts, ensure_ascii=False, indent=2) + "\n", "utf-8")


def _is_as_planned(wanted: Path, made: Path) -> bool:
    files = [wanted] if wanted.is_file() else [path for path in wanted.rglob("*") if path.suffix in (".py", ".md")]
    return all((made / path.relative_to(wanted)).read_bytes() == path.read_bytes() for path in files)


def settled(file: Path, project: Path, folder: Path) -> list[str]:
    """Remove names of this machine and run from the recording; return the length of calls."""
    header, *calls = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    header["command"] = ["atomic", "run", "--record", file.name]
    for call in calls:
        call["events"] = _without_long_pauses(call["events"])
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in (header, *calls))
    for real, name in _names(calls, project, folder).items():
        text = text.replace(real, name)
    for word in (os.path.expanduser("~"), str(ROOT), tempfile.gettempdir(), getpass.getuser()):
        at = re.search(rf"(?<![\w.]){re.escape(word)}(?!\w)", text)
        assert at is None, f"{word} is in the recording: {text[max(0, at.start() - 200) :][:400]}"
    file.write_text(text, "utf-8")
    return [f"{call['role']} {call['task'] or ''}: {call['events'][-1][0]:.1f} s" for call in calls]


def _names(calls: list[dict[str, Any]], project: Path, folder: Path) -> dict[str, str]:
    """Return replacements for names of this machine and run, the longest first."""
    prefix = subprocess.check_output(["python3", "-c", "import sys; print(sys.base_prefix)"], text=True).strip()
    sessions = dict.fromkeys(call["session"] for call in calls)
    return {
        **{session: f"session-{number}" for number, session in enumerate(sessions, 1)},
        f"{project}/": "",
        str(project): ".",
        str(folder): "/home/demo",
        prefix: "/usr",
    }


def _without_long_pauses(events: list[Any]) -> list[Any]:
    """Shorten the long pauses at the start of a program; keep the order and the rhythm."""
    played: list[Any] = []
    last = 0.0
    now = 0.0
    for seconds, event in events:
        now = now + min(seconds - last, LONGEST_PAUSE)
        last = seconds
        played.append([round(now, 3), event])
    return played


if __name__ == "__main__":
    definition = next(one for one in builtin_workflows() if one.demo is not None)
    assert definition.demo is not None
    asyncio.run(record(Path(definition.demo.folder) / RECORDING))
