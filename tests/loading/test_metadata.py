"""A workflow's metadata is read from its text without running it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.loading import metadata_reader
from atomic.loading.metadata import is_newer, read_metadata
from tests.loading.projects import World
from tests.support.timing import judge

WHOLE = '''"""Plan, then execute."""
name = "my-workflow"
description: str = "Plan it"
aliases = ["mw", "plan-it"]
version = "1.0.0"
min_sdk_version = "0.1"
state_version = 3
argument_hint = "PROMPT [--deep]"
default_config = {"depth": 2, "deep": {"a": [1, None, True]}}
node_descriptions = {"planner": "🧠 Planning tasks…"}
'''


def test_all_metadata_of_a_file_is_read() -> None:
    said = read_metadata(WHOLE.encode(), "other")
    assert (said.name, said.description, said.aliases) == ("my-workflow", "Plan it", ("mw", "plan-it"))
    assert (said.version, said.min_sdk_version, said.state_version) == ("1.0.0", "0.1", 3)
    assert said.argument_hint == "PROMPT [--deep]"
    assert said.default_config == {"depth": 2, "deep": {"a": [1, None, True]}}
    assert said.node_descriptions == {"planner": "🧠 Planning tasks…"}
    assert said.remarks == ()


def test_a_file_without_metadata_is_named_after_the_file() -> None:
    said = read_metadata(b"", "my-flow")
    assert (said.name, said.description) == ("my-flow", "Custom workflow: my-flow")
    assert (said.aliases, said.state_version, said.default_config, said.remarks) == ((), 1, {}, ())


@pytest.mark.parametrize(
    ("line", "field", "default"),
    [
        ('name = "a" + "b"', "name", "stem"),
        ("name = 3", "name", "stem"),
        ('name = "two words"', "name", "stem"),
        ('name = "../../etc/passwd"', "name", "stem"),
        ('name = "\\x1b]0;title\\x07"', "name", "stem"),
        ('name = "-rf"', "name", "stem"),
        ("description = open('/etc/passwd').read()", "description", "Custom workflow: stem"),
        ("description = f'{1}'", "description", "Custom workflow: stem"),
        ("aliases = 'mw'", "aliases", ()),
        ("aliases = ['a b']", "aliases", ()),
        ("aliases = [x for x in 'ab']", "aliases", ()),
        ("version = 1.0", "version", ""),
        ("min_sdk_version = 'soon'", "min_sdk_version", ""),
        ("min_sdk_version = '" + "9" * 5000 + "'", "min_sdk_version", ""),
        ("state_version = True", "state_version", 1),
        ("state_version = 0", "state_version", 1),
        ("default_config = {1: 2}", "default_config", {}),
        ("default_config = {'a': {1, 2j}}", "default_config", {}),
        ("default_config = {'a': '\\ud800'}", "default_config", {}),
        ("default_config = dict(a=1)", "default_config", {}),
        ("node_descriptions = {'a': 1}", "node_descriptions", {}),
        ("name = name = __import__('os')", "name", "stem"),
    ],
)
def test_a_value_of_the_wrong_kind_is_a_remark_with_its_line(line: str, field: str, default: object) -> None:
    said = read_metadata(f"# one\n\n{line}\n".encode(), "stem")
    assert getattr(said, field) == default
    (remark,) = said.remarks
    assert remark.line == 3
    assert remark.reason.startswith(f"{field} ")
    assert not remark.fatal


def test_the_last_assignment_at_module_level_counts() -> None:
    said = read_metadata(b'name = "a"\nname = "b"\nif True:\n    name = "c"\ndef f():\n    name = "d"\n', "stem")
    assert said.name == "b"


NUL = b"name = 'a'\n\0\n"
BROKEN = {
    "syntax error": (b"name = 'a'\n\ndef (\n", 3),
    "NUL": (NUL, 2),
    "not UTF-8": (b"# a\n# \xff\n", 2),
    "UTF-16": ('name = "a"\n'.encode("utf-16"), 1),
    "unknown encoding": (b"# -*- coding: nonsense -*-\n", 1),
    "encoding that is none of texts": (b"# -*- coding: base64 -*-\nYQ==\n", 1),
    "deep parentheses": (b"x = " + b"(" * 100_000, 1),
    "deep signs": (b"x = " + b"-" * 200_000 + b"1", 1),
    "deep calls": (b"a" + b"()" * 200_000, 1),
    "long sum": (b"x = " + b"1+" * 200_000 + b"1", 1),
    "deep nots": (b"not " * 100_000 + b"1", 1),
    "deep lambdas": (b"lambda:" * 100_000 + b"1", 1),
    "elifs": (b"if 1:\n pass\n" + b"elif 1:\n pass\n" * 50_000, 1),
    "wrong indent": (b"x = 1\n  y = 2\n", 2),
}


@pytest.mark.timed
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_gives_one_remark_with_its_line(kind: str) -> None:
    source, line = BROKEN[kind]
    began = time.process_time()
    said = read_metadata(source, "stem")
    judge(time.process_time() - began, 5)
    (remark,) = said.remarks
    assert remark.fatal
    assert remark.line == line
    assert (said.name, said.description) == ("stem", "Custom workflow: stem")


@pytest.mark.parametrize(
    "source",
    [
        b"\xef\xbb\xbf" + b'name = "bom"\n',
        b'name = "bom"\r\n',
        b'name = "bom"\r',
        b'x = "\\d"\nname = "bom"\n',  # Python warns about it
    ],
)
def test_text_that_python_accepts_is_accepted(source: bytes) -> None:
    assert read_metadata(source, "stem").name == "bom"


def test_a_deep_literal_is_a_remark() -> None:
    said = read_metadata(b"default_config = {'a': " + b"[" * 150 + b"]" * 150 + b"}\nname = 'x'\n", "stem")
    assert said.name == "x"


@pytest.mark.parametrize("stem", ["two words", "\x1b[2J", "-rf", "", "a/b"])
def test_a_file_with_an_unusable_file_name_needs_a_name(stem: str) -> None:
    (remark,) = read_metadata(b"", stem).remarks
    assert remark.fatal
    assert read_metadata(b"name = 'ok'\n", stem).name == "ok"


@given(st.binary(max_size=300))
def test_reading_ends_for_any_bytes(source: bytes) -> None:
    assert read_metadata(source, "stem").name


@given(st.text(max_size=50))
def test_any_description_can_be_encoded(text: str) -> None:
    said = read_metadata(f"description = {text!r}\n".encode("utf-8", "surrogatepass"), "stem")
    said.description.encode()


@pytest.mark.parametrize(
    ("wanted", "have", "newer"),
    [
        ("0.1", "0.1.0", False),
        ("0.1.1", "0.1.0", True),
        ("0.10", "0.9.9", True),
        ("1", "0.99", True),
        ("0.1.0", "0.1", False),
        ("0.0.9", "0.1.0", False),
        ("0.2rc1", "0.1.0", True),
    ],
)
def test_versions_are_compared_by_their_numbers(wanted: str, have: str, newer: bool) -> None:
    assert is_newer(wanted, have) is newer


@pytest.mark.parametrize("encoding", ["latin-1", "utf-7", "shift_jis", "utf-16"])
def test_code_in_another_encoding_than_utf_8_is_refused(encoding: str) -> None:
    said = read_metadata(f"# -*- coding: {encoding} -*-\nname = 'x'\n".encode(), "stem")
    assert said.name == "stem"
    assert said.remarks[0].fatal


_SLOW = f"a = 1\nname = f'{'{a}' * 330_000}'\n"
_LONG = "name = 'long'\n" + "# filler\n" * 5000


def test_the_long_files_of_a_folder_share_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_reader, "CPU_SECONDS", 1)
    monkeypatch.setattr(metadata_reader, "FOLDER_CPU_SECONDS", 2, raising=False)
    world = World(tmp_path)
    for name, text in (("a", _SLOW), ("b", _SLOW), ("c", _LONG), ("d", "description = 'short'\n")):
        world.flow(name, text)
    world.flow("own", _LONG, user=True)
    catalog = world.catalog
    reasons = {problem.path.stem: problem.reason for problem in catalog.problems}
    assert reasons == {
        "a": "this file takes more than 1 s to read: make it smaller",
        "b": "this file takes more than 1 s to read: make it smaller",
        "c": "this file was not read: the large files of its folder take more than 2 s; make them smaller",
    }
    assert catalog.definition("d").description == "short"
    assert catalog.definition("long").source == "user", "another folder has its own budget"


def test_a_file_that_takes_too_much_memory_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_reader, "MEMORY", 128 * 1024**2)
    monkeypatch.setattr(metadata_reader, "CPU_SECONDS", 60)
    world = World(tmp_path)
    world.flow("wide", f"x = [{'[],' * 300_000}]\n")
    assert "memory" in one_reason(world)


def test_a_crash_of_the_parser_is_reported_with_its_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    monkeypatch.setattr(metadata_reader, "_PROGRAM", crash)
    world = World(tmp_path)
    world.flow("long", _LONG)
    assert one_reason(world).startswith("Python ended with SIGSEGV while it read this file")


def one_reason(world: World) -> str:
    (problem,) = world.catalog.problems
    return problem.reason
