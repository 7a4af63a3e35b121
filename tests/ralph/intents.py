"""Do what a task of a generated pair intends, as an able worker would: a program of its own.

    python intents.py FILE HOW

FILE has the intents and the worker's habits as JSON. HOW is `first`, `returned` (the task was not
merged), `fresh` (it begins again from the tip) or `unfinished` (it left git in the middle of
something). Each intent is written for the project as it is found: the other task may have moved,
renamed or changed what it is about. An intent that holds already changes nothing.

The program needs only the standard library.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Intent = Mapping[str, Any]
MESSAGE = "Do the work"


def git(*words: str, check: bool = True) -> int:
    done = subprocess.run(["git", *words], check=False, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr}")
    return done.returncode


# Files


def texts() -> Iterator[tuple[Path, list[str]]]:
    for path in sorted(Path().rglob("*")):
        if ".git" in path.parts or not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" not in data:
            yield path, data.decode().splitlines()


def find_line(line: str) -> tuple[Path, list[str], int] | None:
    for path, lines in texts():
        if line in lines:
            return path, lines, lines.index(line)
    return None


def save(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


# Intents


def replace(intent: Intent) -> None:
    if find_line(intent["new"]):
        return
    found = find_line(intent["old"])
    if found:
        path, lines, at = found
        lines[at] = intent["new"]
    else:  # the other task has replaced it: keep both
        found = find_line(intent["near"])
        assert found, intent
        path, lines, at = found
        lines.insert(at + 1, intent["new"])
    save(path, lines)


def insert(intent: Intent) -> None:
    if find_line(intent["lines"][0]):
        return
    found = find_line(intent["after"])
    if found is None:  # the other task has deleted its file
        add({"path": "kept_lines.txt", "lines": intent["lines"]})
        return
    path, lines, at = found
    lines[at + 1 : at + 1] = intent["lines"]
    save(path, lines)


def move(intent: Intent) -> None:
    """Move a function, from its first line to the blank line after it, to the end of a file."""
    found = find_line(intent["function"])
    assert found, intent
    path, lines, at = found
    end = lines.index("", at) + 1
    if str(path) == intent["to"] and (end == len(lines) or intent["to"] != intent["from"]):
        return
    block = lines[at:end]
    del lines[at:end]
    save(path, lines)
    target = Path(intent["to"])
    save(target, [*target.read_text().splitlines(), *block])


def rename(intent: Intent) -> None:
    target = Path(intent["to"])
    mark = f"# file: {intent['path']}"
    if target.exists() and mark in target.read_text().splitlines():
        return
    found = find_line(mark)
    assert found, intent
    path, lines, _ = found
    if target.exists():  # another file has got this name: both contents
        save(target, [*target.read_text().splitlines(), *lines])
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    if str(path) == intent["path"]:
        path.unlink()


def delete(intent: Intent) -> None:
    path = Path(intent["path"])
    if not path.exists():
        return
    extra = [line for line in path.read_text().splitlines() if line not in intent["lines"]]
    path.unlink()
    if extra:  # the other task has written something new
        save(Path(f"kept_{path.name}"), extra)


def add(intent: Intent) -> None:
    if all(find_line(line) for line in intent["lines"]):
        return
    path = Path(intent["path"])
    if any(parent.is_file() for parent in path.parents):
        path = Path(f"{path.parent}.d", path.name)
    if path.is_dir():
        path = path.with_name(f"{path.name}.txt")
    known = path.read_text().splitlines() if path.exists() else []
    save(path, [*known, *(line for line in intent["lines"] if line not in known)])


def mode(intent: Intent) -> None:
    found = find_line(f"# file: {intent['path']}")
    assert found, intent
    found[0].chmod(0o755)


def binary(intent: Intent) -> None:
    path = Path(intent["path"])
    new = bytes.fromhex(intent["new"])
    if path.read_bytes() not in (bytes.fromhex(intent["old"]), new):  # the other task's
        path = path.with_name(f"second-{path.name}")
    path.write_bytes(new)


def rename_symbol(intent: Intent) -> None:
    for path, lines in texts():
        if path.suffix == ".py":
            new = [re.sub(rf"\b{intent['old']}\b", intent["new"], line) for line in lines]
            if new != lines:
                save(path, new)


def call(intent: Intent) -> None:
    known = Path("shapes.py").read_text()
    [symbol] = [name for name in intent["symbols"] if f"def {name}(" in known]
    lines = ["from shapes import " + symbol, f"{intent['result']} = {symbol}(3)"]
    save(Path(intent["path"]), lines)


def item(intent: Intent) -> None:
    """Add an item with the next free number."""
    path = Path("items", f"{intent['name']}.txt")
    others = [other.read_text().split()[1] for other in Path("items").glob("*.txt") if other != path]
    save(path, [f"id {max(map(int, others)) + 1}", f"name {intent['name']}"])


INTENTS: dict[str, Callable[[Intent], None]] = {
    one.__name__: one for one in (replace, insert, move, rename, delete, add, mode, binary, rename_symbol, call, item)
}


# Habits


def do(intents: list[Intent]) -> None:
    for intent in intents:
        INTENTS[intent["kind"]](intent)


def commit() -> None:
    git("add", "-A")
    if git("diff", "--cached", "--quiet", check=False):
        git("commit", "-q", "-m", MESSAGE)


def first(intents: list[Intent], habit: str) -> None:
    if habit == "detached":
        git("checkout", "-q", "--detach")
    if habit == "branch":
        git("checkout", "-q", "-B", "mine")
    if habit == "steps":  # a detour, which the next commit takes back
        touched = {path: path.read_bytes() for path, _ in texts() if path.suffix in (".py", ".txt")}
        for path in touched:
            path.write_bytes(b"a detour\n" + touched[path])
        commit()
        for path, data in touched.items():
            path.write_bytes(data)
    do(intents)
    if habit != "uncommitted":
        commit()


def solve_by_rebase(intents: list[Intent], *, leave: bool = False) -> None:
    git("rebase", "-q", "atomic-tip", check=False)
    if leave:
        return
    while Path(".git/rebase-merge").exists():
        git("reset", "-q", "--hard")
        git("clean", "-qfd")
        do(intents)
        commit()
        git("-c", "core.editor=:", "rebase", "--skip", check=False)
    do(intents)
    commit()


def solve_by_merge(intents: list[Intent]) -> None:
    """Solve a conflict in the commit of the merge."""
    git("merge", "-q", "--no-ff", "--no-commit", "atomic-tip", check=False)
    git("read-tree", "-u", "--reset", "atomic-tip")
    git("clean", "-qfd")
    do(intents)
    git("add", "-A")
    git("commit", "-q", "-m", "Merge the work of others")


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    how = sys.argv[2]
    intents: list[Intent] = given["intents"]
    solves: str = given["solves"]
    if how in ("first", "fresh"):
        first(intents, given["habit"] if how == "first" else "")
    elif how == "unfinished":
        solve_by_rebase(intents)
    elif solves == "merge":
        solve_by_merge(intents)
    elif solves == "redo":
        git("reset", "-q", "--hard", "atomic-tip")
        do(intents)
        commit()
    elif solves != "nothing":
        solve_by_rebase(intents, leave=solves == "leave")


if __name__ == "__main__":
    main()
