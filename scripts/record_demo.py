"""Record the demo: Claude Code on the scripted model works, `atomic run --record` records.

The model's answers are in this file. The run begins with the files in scripts/demo/start/
and writes those in scripts/demo/end/, with faults that it has to find. Two tasks change
the same lines, and the one that is merged second has a conflict. Which one that is depends
on the machine, so there are two runs, one for each order, and the recording has the answers
of both. It is stored with the workflow of the demo; review the difference before you
commit it.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from atomic.cli.demo import PROJECT, RECORDING, identity, make_project, python_name
from atomic.git.calls import run_git
from atomic.loading.catalog import builtin_workflows
from atomic.testing import Call, ModelServer, Pause, Say, Think, Tokens, claude_env
from atomic.workflows.definition import Demo, WorkflowDefinition

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.ordered_checks import write_ordered_python  # noqa: E402  # the root has to be on the path first

START, FILES = (Path(__file__).parent / "demo" / name for name in ("start", "end"))
LONGEST_PAUSE = 0.16  # seconds
TESTS = "python3 -m unittest -q"
README = "README.md"
# Task 1 is merged last, so that a solved conflict has only the work of tasks 2 and 3.
ORDERS = (("2", "3", "1"), ("3", "2", "1"))
GLIDER = "{(1, 0), (2, 1), (0, 2), (1, 2), (2, 2)}"
LOOK = f"python3 -c 'from life.picture import draw; print(*draw({GLIDER}, 3, 4), sep=chr(10))'"
EXPECTED = {"1": 2, "2": 2, "3": 2, "4": 1, "fix-1-1": 1}  # turns by task
AGAIN = "Findings of the last round"  # in the prompt of the second review

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
# Lines that two tasks add at the same place.
RULES_LINE = "* `life.board`: the rules\n"
PATTERNS_LINE = "* `life.patterns`: patterns that are worth watching\n"
PICTURE_LINE = "* `life.picture`: cells as text\n"

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
            " `pattern(name, left, top)` and `centred(name, width, height)`. Tests in tests/test_patterns.py; a line in"
            " the list of modules in README.md.",
            "acceptance": ["a glider has five cells", "each picture is a rectangle"],
        },
        {
            "id": "3",
            "title": "Draw a board with half blocks",
            "description": "life/picture.py: `draw(alive, width, height)` gives lines of text, two rows of cells in"
            " each; `framed(lines, width, title)` puts a frame around them. Tests in tests/test_picture.py; a line in"
            " the list of modules in README.md.",
            "acceptance": ["every cell of the board can be seen, whatever its size"],
        },
        {
            "id": "4",
            "title": "Add the command that plays it",
            "description": "life/__main__.py: `python3 -m life [PATTERN]` with --width, --height, --steps, --delay and"
            " --still; it moves in a terminal and shows the last generation elsewhere. Tests in tests/test_main.py; how"
            " to run it in README.md.",
            "blocked_by": ["1", "2", "3"],
            "acceptance": [
                "a pulsar repeats after 3 generations",
                "`python3 -m life gun --steps 30 --still` shows 41 cells: the gun has fired a glider",
                "an unknown pattern is refused",
            ],
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
        return "review-2" if AGAIN in prompt else "review-1"
    return f"{role}-{task}-{attempt}" if task else role


def look_around() -> list[Call]:
    return [Call("Glob", {"pattern": "**/*.py"}), read(README), read("tests/test_package.py")]


def write(name: str) -> Call:
    text = (FILES / name).read_text("utf-8")
    right, wrong = FIRST.get(name, ("", ""))
    assert right in text, name
    return write_text(name, text.replace(right, wrong) if right else text)


def write_text(name: str, text: str) -> Call:
    return Call("Write", {"file_path": name, "content": text})


def read(name: str) -> Call:
    return Call("Read", {"file_path": name})


def edit(name: str, old: str, new: str) -> Call:
    return Call("Edit", {"file_path": name, "old_string": old, "new_string": new})


def add_line(line: str) -> Call:
    return edit(README, RULES_LINE, RULES_LINE + line)


def run(command: str, why: str) -> Call:
    return Call("Bash", {"command": command, "description": why})


def commit(message: str, *names: str) -> Call:
    return run(f"git add {' '.join(names)} && git commit -q -m '{message}' && git log --oneline -1", "Commit it")


def solve_conflict() -> list[Any]:
    """Return the turns of a worker whose line in the README conflicts with another's."""
    start = (START / README).read_text("utf-8")
    both = start.replace(RULES_LINE, RULES_LINE + PATTERNS_LINE + PICTURE_LINE)
    assert both != start
    return [
        turn("On top of their work, then.", run("git rebase atomic-tip", "Put it on top of the other task")),
        turn("Two lines at the same place: both stay.", read(README), write_text(README, both)),
        turn("Does it fit together?", run(TESTS, "Run the tests")),
        turn("Green.", run(f"git add {README} && GIT_EDITOR=true git rebase --continue", "Finish the rebase")),
        said("Both lines are in the list now."),
    ]


def turn(thought: str, *words: Any, pause: float = 0.5, tokens: int = 400) -> list[Any]:
    """Return one answer of the model: it thinks, pauses, then writes or calls a tool."""
    return [Pause(pause), Think(thought), Pause(pause / 2), *words, Tokens(input=900, output=tokens, cached=14_000)]


def said(text: str, tokens: int = 60) -> list[Any]:
    return [Pause(0.3), Say(text), Tokens(input=600, output=tokens, cached=15_000)]


def scripts() -> dict[str, Any]:
    return {
        "planner": [
            turn("What is there already?", *look_around()),
            turn(
                "Rules, patterns, pictures: three parts that need nothing of each other. The command comes last.",
                Call("mcp__atomic__submit_plan", PLAN), pause=0.8, tokens=900,
            ),
            said("Four tasks: three that need nothing of each other, then the command that plays it."),
        ],
        "worker-1-1": [
            turn("A set of cells, and a count of neighbours.", write("life/board.py"), tokens=350),
            turn("Block, blinker, and a glider that flies around.", write("tests/test_board.py"), tokens=600),
            turn("That is it.", commit("Add the rules of Life", "life/board.py", "tests/test_board.py")),
            said("The rules are there, with tests; all of them pass."),
        ],
        "worker-1-2": [
            turn("The glider did not come home: neighbours go over the edge.", read("life/board.py")),
            turn("They have to wrap.", edit("life/board.py", ENDLESS, WRAPPED)),
            turn("This time I run them.", run(TESTS, "Run the tests")),
            turn("Green.", commit("Let neighbours wrap around the edges", "life/board.py")),
            said("Cells at an edge now have neighbours on the other side: the glider comes home."),
        ],
        "worker-2-1": [
            turn("Pictures are easier to check than numbers.", write("life/patterns.py"), tokens=700),
            turn("What must hold for each.", write("tests/test_patterns.py"), tokens=500),
            turn("A line in the list.", read(README), add_line(PATTERNS_LINE)),
            turn("Let us see.", run(TESTS, "Run the tests")),
            turn("Green.", commit("Add patterns worth watching", "life", "tests", README)),
            said("Glider, acorn, pulsar and gun are there."),
        ],
        "worker-2-2": solve_conflict(),
        "worker-3-1": [
            turn("Half blocks make the cells square.", write("life/picture.py"), tokens=400),
            turn("Two rows, an empty board, a frame.", write("tests/test_picture.py"), tokens=350),
            turn("A line in the list.", read(README), add_line(PICTURE_LINE)),
            turn("Does it look right?", run(LOOK, "Draw a glider")),
            turn("Let us see.", run(TESTS, "Run the tests")),
            turn("Green.", commit("Draw a board with half blocks", "life", "tests", README)),
            said("A board is drawn with two rows of cells in each line."),
        ],
        "worker-3-2": solve_conflict(),
        "worker-4-1": [
            turn("It moves in a terminal only.", write("life/__main__.py"), tokens=900),
            turn("Through its own door.", write("tests/test_main.py"), tokens=450),
            turn("How to run it.", read(README), write(README), tokens=150),
            turn("Now look at it.", run(f"{TESTS} && python3 -m life gun --steps 30 --still", "Look at it")),
            turn("A glider!", commit("Add the command that plays it", "life", "tests", README)),
            said("`python3 -m life gun` plays it."),
        ],
        "review-1": [
            turn(
                "range(0, height - 1, 2): what about an odd height?",
                run("python3 -c 'from life.picture import draw; print(draw({(0, 2)}, 1, 3))'", "Draw an odd board"),
                pause=0.9,
            ),
            turn("The cell is not there.", run("python3 -m life glider --width 0 --steps 1", "Try the limits")),
            turn("One that blocks, one to report.", Call("mcp__atomic__submit_review", FOUND), tokens=500),
            said("The last row of odd boards is lost; that must be fixed."),
        ],
        "fixer-fix-1-1-1": [
            turn("The reviewer is right.", read("life/picture.py"), read("tests/test_picture.py")),
            turn("First a test that fails.", edit("tests/test_picture.py", *_with_odd_test())),
            turn("Does it?", run(f"{TESTS}; true", "See it fail")),
            turn("It does. Now the last ro", edit("life/picture.py", EVEN_ROWS, ALL_ROWS)),
            turn("And now?", run(TESTS, "See it pass")),
            turn("Green.", commit("Draw the last row of an odd board", "life/picture.py", "tests/test_picture.py")),
            said("The last row is drawn, and a test holds it."),
        ],
        "review-2": [
            turn(
                "Is it really gone?",
                run("python3 -c 'from life.picture import draw; print(draw({(0, 2)}, 1, 3))'", "Draw an odd board"),
            ),
            turn("It is, with a test.", Call("mcp__atomic__submit_review", APPROVED), tokens=120),
            said("Approved."),
        ],
    }  # fmt: skip


def _with_odd_test() -> tuple[str, str]:
    """Return the end of the first test file, and its replacement with one more test."""
    last = '        self.assertIn("glider", lines[0])\n'
    return last, last + ODD_TEST


# The runs


async def record(kept: Path) -> None:
    """Record the runs; replace the file only if everything succeeded."""
    definition = next(one for one in builtin_workflows() if one.demo is not None)
    assert definition.demo is not None
    assert python_name() == "python3", "the recorded commands use python3"
    write_start(Path(definition.demo.folder) / PROJECT)
    recordings: list[list[Any]] = []
    for order in ORDERS:
        with tempfile.TemporaryDirectory(prefix="record-demo-") as temporary:
            recordings.append(await record_run(definition, definition.demo, Path(temporary).resolve(), order))  # noqa: ASYNC240
    lines = joined(*recordings)
    for call in lines[1:]:
        print(f"{call['role']} {call['task'] or ''} {call['match'] or ''}: {call['events'][-1][0]:.1f} s")
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    await asyncio.to_thread(kept.write_text, text, "utf-8")


async def record_run(
    definition: WorkflowDefinition, demo: Demo, folder: Path, order: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return the lines of the recording of a run that merges the tasks in this order."""
    file = folder / RECORDING
    project = folder / "project"
    home = folder / "home"
    programs = folder / "bin"
    for made in (home, programs):
        made.mkdir()
    await make_project(demo, project)
    write_ordered_python(programs, home, order)
    verify = [word for check in demo.config["verify"] for word in ("--verify", check.replace("{python}", "python3"))]
    words = (
        *("run", definition.name, "--agent", "claude", "--record", str(file)),
        *("--isolate", "clone"),  # a recording sees the files of a folder, not the files of a namespace
        *verify,
        demo.prompt,
    )
    async with ModelServer(scripts(), named=script_of, default="(no script)") as server:
        env = {**claude_env(server, home), **identity(), "PYTHONPATH": str(ROOT / "src")}
        env["PATH"] = f"{programs}{os.pathsep}{env['PATH']}"
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "atomic", *words, cwd=project, env=env)
        code = await process.wait()
    assert code == 0, f"the run ended with {code}"
    [id] = [entry.name for entry in (home / ".atomic" / "sessions").iterdir()]
    await run_git("merge", "-q", "--ff-only", f"atomic/{id[:8]}", cwd=project, env=identity())
    for name in ("life", "tests", README):
        assert _is_as_planned(FILES / name, project / name), f"{name} is not what scripts/demo/end has"
    return settled(file, folder, id)


def joined(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of the first run, and the call of the second that solves its
    conflict.

    Of several calls for a task each has a `match`, so that a replay cannot confuse them.
    """
    lines = [*first, *(call for call in second[1:] if (call["task"], attempt_of(call)) == (ORDERS[1][1], "2"))]
    by_task: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    for call in lines[1:]:
        by_task.setdefault((call["role"], call["task"]), []).append(call)
    assert {task: len(calls) for (_, task), calls in by_task.items() if task} == EXPECTED
    for (role, _), calls in by_task.items():
        for call in calls if len(calls) > 1 else ():
            call["match"] = f"attempt={attempt_of(call)}"
            if role == "reviewer":
                call["match"] = AGAIN if AGAIN in call["prompt"] else None
    return lines


def attempt_of(call: dict[str, Any]) -> str:
    found = re.search(r"attempt=(\d+)", call["prompt"])
    assert found is not None
    return found[1]


def write_start(file: Path) -> None:
    """Write the files that the run begins with into the package."""
    names = sorted(path for path in START.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    texts = {path.relative_to(START).as_posix(): path.read_text("utf-8") for path in names}
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(texts, ensure_ascii=False, indent=2) + "\n", "utf-8")


def _is_as_planned(wanted: Path, made: Path) -> bool:
    files = [wanted] if wanted.is_file() else [path for path in wanted.rglob("*") if path.suffix in (".py", ".md")]
    return all((made / path.relative_to(wanted)).read_bytes() == path.read_bytes() for path in files)


def settled(file: Path, folder: Path, id: str) -> list[dict[str, Any]]:
    """Return the lines of a recording without names of this machine and of the run."""
    text = file.read_text("utf-8")
    calls = [json.loads(line) for line in text.splitlines()[1:]]
    for pattern, name in _names(calls, folder, id):
        text = re.sub(pattern, name, text)
    for word in (os.path.expanduser("~"), str(ROOT), tempfile.gettempdir(), getpass.getuser()):
        at = re.search(rf"(?<![\w.]){re.escape(word)}(?!\w)", text)
        assert at is None, f"{word} is in the recording: {text[max(0, at.start() - 200) :][:400]}"
    header, *calls = [json.loads(line) for line in text.splitlines()]
    header["command"] = ["atomic", "run", "--record", file.name]
    for call in calls:
        call["events"] = _without_long_pauses(call["events"])
    return [header, *calls]


def _names(calls: list[dict[str, Any]], folder: Path, id: str) -> Iterator[tuple[str, str]]:
    """Yield patterns of names of this machine and run, the longest first, and their replacements."""
    prefix = subprocess.check_output(["python3", "-c", "import sys; print(sys.base_prefix)"], text=True).strip()
    sessions = dict.fromkeys(call["session"] for call in calls)
    for number, session in enumerate(sessions, 1):
        yield session, f"session-{number}"
    for root in (rf"{folder}/home/\.atomic/workspaces/{id}/[\w-]+/project", f"{folder}/project"):
        yield f"{root}/", ""
        yield root, "."
    yield str(folder), "/home/demo"
    yield id, "RUN"
    yield prefix, "/usr"


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
