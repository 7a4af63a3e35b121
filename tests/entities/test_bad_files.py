"""Test bad files: each is one diagnostic, the rest is loaded, and nothing outside is read."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time

import pytest

from atomic.entities import EntityRegistry
from tests.entities.files import load, own, reasons, write
from tests.support.timing import judge

HEAD = "---\nname: x\ndescription: found\n---\nHi\n"
GOOD = {".claude/agents/good.md": "---\nname: good\n---\nGood"}
BAD = ".claude/agents/bad.md"

CONTENTS: dict[str, tuple[str | bytes, int, str]] = {
    "alias bomb": ("---\na: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n---\n", 3, "alias"),
    "10 MB of front matter": ("---\nname: " + "x" * 10_000_000 + "\n---\n", 1, "longer than 1,048,576 bytes"),
    "100 KB of front matter": ("---\nname: " + "x" * 100_000 + "\n---\n", 1, "64 KB"),
    "66 KB of front matter": ("---\nname: " + "x" * 65_540 + "\n---\n", 2, "64 KB"),
    "10 MB of text": ("---\nname: x\n---\n" + "x" * 10_000_000, 1, "longer than 1,048,576 bytes"),
    "depth 1,000": ("---\na: " + "[" * 1000 + "]" * 1000 + "\n---\n", 2, "deeper"),
    "tag": ("---\nname: x\nrun: !!python/object/apply:os.system [exit]\n---\n", 3, "tag"),
    "NUL": ("---\nname: x\n---\nHi\0\n", 4, "NUL"),
    "UTF-16": ("---\nname: x\n---\n".encode("utf-16"), 1, "UTF-16"),
    "Latin-1": ("---\nname: x\ndescription: é\n---\n".encode("latin-1"), 3, "UTF-8"),
    "no closing marker": ("---\nname: x\nHi", 1, "no closing ---"),
    "empty": ("", 1, "no front matter"),
}


def only_diagnostic(registry: EntityRegistry, name: str = "bad.md") -> tuple[int, str]:
    """Check that the good entity is there and return the only diagnostic."""
    assert [entity.name for entity in own(registry)] == ["good"]
    [(file, line, reason)] = reasons(registry)
    assert file == name
    return line, reason


@pytest.mark.timed
@pytest.mark.parametrize(("content", "line", "reason"), CONTENTS.values(), ids=CONTENTS.keys())
def test_a_bad_file_is_one_diagnostic(tmp_path: Path, content: str | bytes, line: int, reason: str) -> None:
    start = process_time()
    found_line, found = only_diagnostic(load(tmp_path, {**GOOD, BAD: content}))
    assert found_line == line
    assert reason in found
    judge(process_time() - start, 2)


READABLE: dict[str, str | bytes] = {
    "BOM": b"\xef\xbb\xbf" + HEAD.encode(),
    "CRLF": HEAD.replace("\n", "\r\n"),
    "old Mac": HEAD.replace("\n", "\r"),
    "tabs": HEAD.replace("description: ", "description:\t"),
    "duplicate keys": HEAD.replace("name: x", "name: y\nname: x"),
    "no YAML": HEAD.replace("name: x", "name: x\nnote: not: valid: yaml"),
    "a long text": HEAD + "x" * 500_000,
    "cut in a letter": HEAD + "é" * 100_000,
    "cut in a letter, shifted": HEAD + "x" + "é" * 100_000,
}


@pytest.mark.parametrize("content", READABLE.values(), ids=READABLE.keys())
def test_an_unusual_but_valid_file_is_read(tmp_path: Path, content: str | bytes) -> None:
    registry = load(tmp_path, {BAD: content})
    assert registry.diagnostics == []
    assert registry.require("agent", "x").description == "found"
    assert registry.require("agent", "x").prompt.startswith(("Hi", "x", "é"))


def a_folder(file: Path, _: Path) -> None:
    file.mkdir()


def a_folder_with_a_file(file: Path, _: Path) -> None:
    write(file, {"inner.md": HEAD})


def a_pipe(file: Path, _: Path) -> None:
    os.mkfifo(file)


def a_socket(file: Path, _: Path) -> None:
    here = os.getcwd()
    os.chdir(file.parent)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(file.name)
    os.chdir(here)


def a_link_to_a_pipe(file: Path, project: Path) -> None:
    os.mkfifo(project / "pipe")
    file.symlink_to(project / "pipe")


def a_link_to_a_device(file: Path, _: Path) -> None:
    file.symlink_to("/dev/zero")


def a_link_to_itself(file: Path, _: Path) -> None:
    file.symlink_to(file.name)


def a_link_to_nothing(file: Path, _: Path) -> None:
    file.symlink_to("nothing.md")


def a_link_to_a_file_outside(file: Path, project: Path) -> None:
    (project.parent / "outside.md").write_text(HEAD)
    file.symlink_to(project.parent / "outside.md")


def a_link_to_a_pipe_outside(file: Path, project: Path) -> None:
    os.mkfifo(project.parent / "canary")  # a careless reader would block
    file.symlink_to(project.parent / "canary")


def a_link_to_a_neighbour(file: Path, project: Path) -> None:
    """Link to a folder whose path begins like the project's."""
    write(project.parent / "project-2", {"x.md": HEAD})
    file.symlink_to(project.parent / "project-2/x.md")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (a_folder, "not a regular file"),
        (a_folder_with_a_file, "not a regular file"),
        (a_pipe, "not a regular file"),
        (a_socket, "not a regular file"),
        (a_link_to_a_pipe, "not a regular file"),
        (a_link_to_a_device, "leads out"),
        (a_link_to_itself, "symbolic links"),
        (a_link_to_nothing, "No such file"),
        (a_link_to_a_file_outside, "leads out"),
        (a_link_to_a_pipe_outside, "leads out"),
        (a_link_to_a_neighbour, "leads out"),
    ],
)
@pytest.mark.parametrize("file", [BAD, ".claude/skills/bad/SKILL.md"])
def test_only_regular_files_of_the_project_are_read(
    tmp_path: Path, make: Callable[[Path, Path], None], reason: str, file: str
) -> None:
    project = write(tmp_path / "project", GOOD)
    (project / file).parent.mkdir(parents=True, exist_ok=True)
    make(project / file, project)
    line, found = only_diagnostic(load(tmp_path), Path(file).name)
    assert line == 1
    assert reason in found


@pytest.mark.parametrize(
    "link", [".claude", ".claude/agents", ".claude/agents/team", ".claude/skills", ".claude/skills/x"]
)
def test_a_folder_outside_is_not_read(tmp_path: Path, link: str) -> None:
    project = write(tmp_path / "project", {})
    outside = write(tmp_path / "outside", {"x.md": HEAD, "SKILL.md": HEAD, "x/SKILL.md": HEAD, "agents/x.md": HEAD})
    (project / link).parent.mkdir(parents=True)
    (project / link).symlink_to(outside)
    registry = load(tmp_path)
    assert own(registry) == []
    assert registry.diagnostics
    assert {found.reason for found in registry.diagnostics} == {"a link leads out of the folder: it is not followed"}


def test_links_inside_the_project_are_followed(tmp_path: Path) -> None:
    project = write(tmp_path / "project", {"shared/agents/x.md": HEAD, "shared/skill/SKILL.md": HEAD, "one.md": "One"})
    write(project, {".claude/commands/a.md": "A"})
    (project / ".claude/agents").symlink_to("../shared/agents")
    (project / ".claude/skills").mkdir()
    (project / ".claude/skills/s").symlink_to("../../shared/skill")
    (project / ".claude/commands/one.md").symlink_to("../../one.md")
    (project / ".claude/commands/two.md").symlink_to(project / "one.md")
    (project / ".opencode").symlink_to(".claude")
    registry = load(tmp_path)
    assert registry.diagnostics == []
    assert [entity.name for entity in own(registry)] == ["a", "one", "two", "x", "x"]
    assert registry.require("command", "two").prompt == "One"
    assert len(registry.definitions("agent", "x")) == 2, "one in each folder"


def test_a_project_may_be_a_link(tmp_path: Path) -> None:
    write(tmp_path / "real", GOOD)
    (tmp_path / "link").symlink_to("real")
    registry = EntityRegistry.load(project=tmp_path / "link", user=tmp_path / "home")
    assert registry.require("agent", "good").prompt == "Good"
    assert registry.diagnostics == []


def test_a_loop_of_folders_is_reported(tmp_path: Path) -> None:
    project = write(tmp_path / "project", {".claude/commands/a/x.md": "X"})
    for index in range(5):
        (project / f".claude/commands/a/loop{index}").symlink_to("..")
    for index in range(5):
        (project / f".claude/commands/b{index}").mkdir()
        for other in range(5):
            (project / f".claude/commands/b{index}/to{other}").symlink_to(f"../b{other}")
    registry = load(tmp_path)
    assert registry.require("command", "a:x").prompt == "X"
    assert any("back to a folder around it" in found.reason for found in registry.diagnostics)


def test_folders_that_are_too_deep_are_reported(tmp_path: Path) -> None:
    deep = "/".join("d" * 12)
    registry = load(tmp_path, {f".claude/agents/{deep}/x.md": HEAD, **GOOD})
    assert [entity.name for entity in own(registry)] == ["good"]
    assert "deeper" in registry.diagnostics[0].reason


def test_too_many_files_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atomic.entities.discovery.MAX_ENTRIES", 50)
    registry = load(tmp_path, {f".claude/commands/c{i}.md": "x" for i in range(60)})
    assert len(own(registry)) == 50
    assert "more than 50" in registry.diagnostics[0].reason


def test_a_broken_configuration_is_reported_with_its_line(tmp_path: Path) -> None:
    registry = load(tmp_path, {**GOOD, "opencode.jsonc": '{\n /* a\n b */\n "agent": {x}\n}'})
    assert only_diagnostic(registry, "opencode.jsonc")[0] == 4
    registry = load(tmp_path, {"opencode.jsonc": '{\n "command": []}'})
    assert only_diagnostic(registry, "opencode.jsonc") == (2, '"command" is not an object')
    registry = load(tmp_path, {"opencode.jsonc": '{"agent": {"x": ' + "[" * 100_000})
    assert only_diagnostic(registry, "opencode.jsonc")[0] == 1


@pytest.mark.timed
@pytest.mark.parametrize(
    "text", ['{"a": /*' * 50_000, '"\\' * 250_000, ",/*" * 150_000, "//" * 250_000, '{"a":' * 50_000]
)
def test_a_hostile_configuration_is_rejected_quickly(tmp_path: Path, text: str) -> None:
    start = process_time()
    only_diagnostic(load(tmp_path, {**GOOD, "opencode.json": text}), "opencode.json")
    judge(process_time() - start, 2)


# Root can read every file: the child process drops its capabilities first.
CHILD = """
import ctypes, sys
from atomic.entities import EntityRegistry
assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()) == 0
registry = EntityRegistry.load(project=sys.argv[1], user=sys.argv[2])
print(*(f"{found.path.name} {found.line} {found.reason}" for found in registry.diagnostics), sep="\\n")
print("good" if registry.find("agent", "good") else "none")
"""


def test_a_file_without_read_permission_is_one_diagnostic(tmp_path: Path) -> None:
    project = write(tmp_path / "project", {**GOOD, BAD: HEAD, ".claude/commands/locked/x.md": "Hi"})
    (project / BAD).chmod(0)
    (project / ".claude/commands/locked").chmod(0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, project, tmp_path / "home"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    finally:
        (project / ".claude/commands/locked").chmod(0o700)
    assert done.stdout.splitlines() == [
        "bad.md 1 it cannot be read: Permission denied",
        "locked 1 it cannot be read: Permission denied",
        "good",
    ]
