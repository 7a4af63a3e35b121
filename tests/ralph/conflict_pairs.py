"""Pairs of tasks that get in each other's way, made from a number.

`make_pair(number)` returns the files of a project, and for each of two tasks what it intends: for
the worker (`intents.py` does it) and for the judge, who reads the final tree and knows nothing of
how it was merged.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import msgspec

COUNT = 100
HABITS = ("commits", "commits", "uncommitted", "steps", "detached", "branch")
SOLUTIONS = ("rebase", "merge", "redo", "leave", "nothing")
_LOGO = bytes(range(256)) * 4
_CHECK = '''\
"""Compile and run every module, and compare the numbers of the items."""
import pathlib, runpy
for path in sorted(pathlib.Path().rglob("*.py")):
    if path.name != "check.py":
        runpy.run_path(str(path))
numbers = [path.read_text().split()[1] for path in pathlib.Path("items").glob("*.txt")]
assert len(numbers) == len(set(numbers)), f"two items have one number: {sorted(numbers)}"
'''


class Task(msgspec.Struct):
    """What one task intends.

    Lines are counted over all text files: the other task may have moved them.
    """

    intents: list[Mapping[str, Any]] = []
    added: list[str] = []
    removed: list[str] = []
    gone: list[str] = []  # paths
    words: list[str] = []  # that are in a file of Python code
    no_words: list[str] = []  # that are in none
    executable: list[str] = []  # first lines of files
    blobs: list[bytes] = []
    homes: dict[str, str] = {}  # by line: the file that it must be in


class Pair(msgspec.Struct):
    """Two tasks that are done at the same time."""

    kind: str
    files: dict[str, bytes]
    tasks: tuple[Task, Task]
    habits: tuple[str, str]
    solutions: tuple[str, str]
    isolate: str


class _Maker:
    """The project of a pair, and names that no other file has."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._names = iter(random.sample(range(1000, 9999), 200))
        self.modules = [f"module_{name}.py" for name in self.words(3)]
        self.texts = {module: self._module(module) for module in self.modules}
        self.notes = f"notes_{self.word()}.txt"
        self.texts[self.notes] = [f"# file: {self.notes}", *(f"note {self.word()}" for _ in range(12))]
        self.texts["tool.sh"] = ["# file: tool.sh", *(f"echo {self.word()}" for _ in range(8))]
        self.texts["shapes.py"] = ["def area(side):", "    return side * side", ""]
        self.texts["report.py"] = ["from shapes import area", "total = area(2)"]
        self.texts["items/first.txt"] = ["id 1", "name first"]

    def word(self) -> str:
        return f"w{next(self._names)}"

    def words(self, count: int) -> list[str]:
        return [self.word() for _ in range(count)]

    def _module(self, name: str) -> list[str]:
        lines = [f"# file: {name}", ""]
        for _ in range(4):
            lines += [f"def {self.word()}(x):", *(f"    {self.word()} = x" for _ in range(6)), "    return x", ""]
        return lines

    def functions(self, module: str) -> list[tuple[str, list[str]]]:
        """Return the first line and the body of each function."""
        lines = self.texts[module]
        starts = [at for at, line in enumerate(lines) if line.startswith("def ")]
        return [(lines[at], lines[at + 1 : at + 7]) for at in starts]

    def files(self) -> dict[str, bytes]:
        found = {path: "".join(f"{line}\n" for line in lines).encode() for path, lines in self.texts.items()}
        return {**found, "check.py": _CHECK.encode(), "logo.bin": _LOGO}

    # Intents

    def replace(self, path: str, old: str) -> Task:
        near = self.texts[path][self.texts[path].index(old) - 1]
        new = old.replace("w", "new_w", 1) if "=" in old else f"{old} {self.word()}"
        new = new.replace("= x", f"= x  # {self.word()}")
        return Task([{"kind": "replace", "old": old, "new": new, "near": near}], added=[new], removed=[old])

    def insert(self, after: str) -> Task:
        indent = after[: len(after) - len(after.lstrip())]
        lines = [f"{indent}{self.word()} = 1" if after.endswith("= x") else f"added {self.word()}" for _ in range(2)]
        return Task([{"kind": "insert", "after": after, "lines": lines}], added=lines)

    def move(self, function: str, source: str, target: str) -> Task:
        return Task([{"kind": "move", "function": function, "from": source, "to": target}], homes={function: target})

    def rename(self, path: str, new: str) -> Task:
        return Task([{"kind": "rename", "path": path, "to": new}], gone=[path], homes={f"# file: {path}": new})

    def delete(self, path: str) -> Task:
        lines = self.texts[path]
        return Task([{"kind": "delete", "path": path, "lines": lines}], removed=list(lines), gone=[path])

    def add(self, path: str, lines: list[str]) -> Task:
        return Task([{"kind": "add", "path": path, "lines": lines}], added=lines)

    def mode(self, path: str) -> Task:
        return Task([{"kind": "mode", "path": path}], executable=[f"# file: {path}"])

    def binary(self) -> Task:
        new = b"\0" + self.random.randbytes(300)
        return Task([{"kind": "binary", "path": "logo.bin", "old": _LOGO.hex(), "new": new.hex()}], blobs=[new])


def _both(one: Task, two: Task) -> Task:
    """Return the first task, which also intends the lines of the second."""
    return msgspec.structs.replace(
        one,
        intents=[*one.intents, *two.intents],
        added=[*one.added, *two.added],
        removed=[*one.removed, *two.removed],
    )


def _same_line(make: _Maker) -> tuple[Task, Task]:
    line = make.random.choice(make.texts[make.notes][2:])
    return make.replace(make.notes, line), make.replace(make.notes, line)


def _same_code_line(make: _Maker) -> tuple[Task, Task]:
    _, body = make.random.choice(make.functions(make.modules[0]))
    line = make.random.choice(body)
    return make.replace(make.modules[0], line), make.replace(make.modules[0], line)


def _next_lines(make: _Maker) -> tuple[Task, Task]:
    at = make.random.randrange(3, 10)
    return tuple(make.replace(make.notes, make.texts[make.notes][at + more]) for more in (0, 1))  # type: ignore[return-value]


def _far_lines(make: _Maker) -> tuple[Task, Task]:
    return make.replace(make.notes, make.texts[make.notes][2]), make.replace(make.notes, make.texts[make.notes][-1])


def _same_place(make: _Maker) -> tuple[Task, Task]:
    after = make.random.choice(make.texts[make.notes][1:])
    return make.insert(after), make.insert(after)


def _moved_function(make: _Maker) -> tuple[Task, Task]:
    function, body = make.random.choice(make.functions(make.modules[0]))
    return make.move(function, make.modules[0], make.modules[1]), make.replace(
        make.modules[0], make.random.choice(body)
    )


def _moved_below(make: _Maker) -> tuple[Task, Task]:
    function, body = make.functions(make.modules[0])[make.random.randrange(3)]
    return make.move(function, make.modules[0], make.modules[0]), make.insert(make.random.choice(body))


def _moved_twice(make: _Maker) -> tuple[Task, Task]:
    one, two = make.random.sample(make.functions(make.modules[0]), 2)
    return make.move(one[0], make.modules[0], make.modules[1]), make.move(two[0], make.modules[0], make.modules[2])


def _renamed_file(make: _Maker) -> tuple[Task, Task]:
    edit = make.replace(make.notes, make.random.choice(make.texts[make.notes][1:]))
    return make.rename(make.notes, f"docs/{make.word()}.txt"), edit


def _renamed_and_changed(make: _Maker) -> tuple[Task, Task]:
    lines = make.texts[make.notes]
    one = make.rename(make.notes, f"{make.word()}.txt")
    for line in lines[2:11]:
        more = make.replace(make.notes, line)
        one = _both(one, more)
    return one, make.insert(lines[-1])


def _renamed_twice(make: _Maker) -> tuple[Task, Task]:
    return make.rename(make.notes, f"{make.word()}.txt"), make.rename(make.notes, f"{make.word()}.txt")


def _renamed_to_one(make: _Maker) -> tuple[Task, Task]:
    new = f"{make.word()}.py"
    return make.rename(make.modules[0], new), make.rename(make.modules[1], new)


def _deleted_file(make: _Maker) -> tuple[Task, Task]:
    return make.delete(make.notes), make.insert(make.random.choice(make.texts[make.notes][1:]))


def _deleted_twice(make: _Maker) -> tuple[Task, Task]:
    one = make.delete(make.notes)
    two = make.delete(make.notes)
    more = make.insert(make.texts["tool.sh"][3])
    return one, _both(two, more)


def _added_twice(make: _Maker) -> tuple[Task, Task]:
    path = f"new/{make.word()}.txt"
    return make.add(path, make.words(3)), make.add(path, make.words(4))


def _added_alike(make: _Maker) -> tuple[Task, Task]:
    path = f"new/{make.word()}.txt"
    lines = make.words(3)
    return make.add(path, lines), make.add(path, lines)


def _file_and_folder(make: _Maker) -> tuple[Task, Task]:
    path = f"new_{make.word()}"
    return make.add(path, make.words(2)), make.add(f"{path}/part.txt", make.words(2))


def _mode(make: _Maker) -> tuple[Task, Task]:
    other = make.rename("tool.sh", f"{make.word()}.sh")
    if make.random.random() < 0.5:
        other = make.replace("tool.sh", make.texts["tool.sh"][2])
    return make.mode("tool.sh"), other


def _binary(make: _Maker) -> tuple[Task, Task]:
    return make.binary(), make.binary()


def _binary_and_text(make: _Maker) -> tuple[Task, Task]:
    one = make.binary()
    more = make.replace(make.notes, make.texts[make.notes][4])
    return _both(one, more), make.replace(make.notes, make.texts[make.notes][4])


def _symbol(make: _Maker) -> tuple[Task, Task]:
    """Only a test sees that a new module uses a function that has another name now."""
    new = f"area_{make.word()}"
    result = f"result_{make.word()}"
    path = f"use_{make.word()}.py"
    one = Task([{"kind": "rename_symbol", "old": "area", "new": new}], words=[new], no_words=["area"])
    two = Task([{"kind": "call", "path": path, "symbols": ["area", new], "result": result}], words=[result], homes={})
    return one, two


def _items(make: _Maker) -> tuple[Task, Task]:
    """Only a test sees that both took the next free number."""
    names = make.words(2)
    one, two = (Task([{"kind": "item", "name": name}], added=[f"name {name}"]) for name in names)
    return one, two


_KINDS: dict[str, Callable[[_Maker], tuple[Task, Task]]] = {
    kind.__name__.removeprefix("_").replace("_", " "): kind
    for kind in (
        *(_same_line, _same_code_line, _next_lines, _far_lines, _same_place, _moved_function, _moved_below),
        *(_moved_twice, _renamed_file, _renamed_and_changed, _renamed_twice, _renamed_to_one, _deleted_file),
        *(_deleted_twice, _added_twice, _added_alike, _file_and_folder, _mode, _binary, _binary_and_text),
        *(_symbol, _items),
    )
}


def make_pair(number: int) -> Pair:
    """Return the pair of a number; the kinds follow each other."""
    random = Random(number)
    make = _Maker(random)
    kind = [*_KINDS][number % len(_KINDS)]
    tasks = list(_KINDS[kind](make))
    random.shuffle(tasks)
    return Pair(
        kind=kind,
        files=make.files(),
        tasks=(tasks[0], tasks[1]),
        habits=(random.choice(HABITS), random.choice(HABITS)),
        solutions=(random.choice(SOLUTIONS), random.choice(SOLUTIONS)),
        isolate=random.choice(("overlay", "overlay", "clone")),
    )


# The judge


def read_tree(repository: Path, commit: str) -> dict[str, tuple[str, bytes]]:
    """Return mode and content of each file of a commit."""
    listed = subprocess.run(["git", "ls-tree", "-r", "-z", commit], cwd=repository, check=True, capture_output=True)
    found: dict[str, tuple[str, bytes]] = {}
    for entry in listed.stdout.decode().split("\0")[:-1]:
        facts, _, path = entry.partition("\t")
        mode, _, blob = facts.split()
        shown = subprocess.run(["git", "cat-file", "blob", blob], cwd=repository, check=True, capture_output=True)
        found[path] = mode, shown.stdout
    return found


def find_losses(pair: Pair, done: Iterable[Task], tree: Mapping[str, tuple[str, bytes]]) -> list[str]:
    """Return what is missing in a tree that should have the work of these tasks, and
    everything of the project that they did not intend to remove.
    """
    tasks = list(done)
    lines = _count(data for _, data in tree.values())
    found: list[str] = []
    removed = {line for task in tasks for line in task.removed}
    renamed = {word for task in tasks for word in task.no_words}
    for line, count in _count(pair.files.values()).items():
        is_meant = line in removed or any(word in line for word in renamed) or not line.strip()
        if not is_meant and lines[line] < count:
            found.append(f"a line of the project is lost: {line}")
    added = {line for task in tasks for line in task.added}
    for task in tasks:
        found += [f"not added: {line}" for line in task.added if not lines[line]]
        found += [f"not removed: {line}" for line in task.removed if lines[line] and line not in added]
        found += [f"not gone: {path}" for path in task.gone if path in tree]
        code = b"\n".join(data for path, (_, data) in tree.items() if path.endswith(".py")).decode()
        words = set(code.replace("(", " ").replace("\n", " ").split())
        found += [f"not used: {word}" for word in task.words if word not in words]
        found += [f"still used: {word}" for word in task.no_words if word in words]
        found += [f"not in the right file: {line}" for line, path in task.homes.items() if not _has(tree, path, line)]
        found += [f"not executable: {line}" for line in task.executable if _mode_of(tree, line) != {"100755"}]
        found += ["a binary file is lost" for blob in task.blobs if blob not in [data for _, data in tree.values()]]
    found += [f"a mark of a conflict: {line}" for line in lines if line.startswith(("<<<<<<< ", ">>>>>>> "))]
    return found


def _count(files: Iterable[bytes]) -> Counter[str]:
    """Count the lines of all text files."""
    return Counter(line for data in files if b"\0" not in data for line in data.decode().splitlines())


def _has(tree: Mapping[str, tuple[str, bytes]], path: str, line: str) -> bool:
    return path in tree and line in tree[path][1].decode().splitlines()


def _mode_of(tree: Mapping[str, tuple[str, bytes]], line: str) -> set[str]:
    return {mode for mode, data in tree.values() if b"\0" not in data and line in data.decode().splitlines()}
