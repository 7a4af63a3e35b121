"""Test front matter: invalid YAML is read as text, and no text makes it slow."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from time import process_time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from atomic.entities import frontmatter
from atomic.entities.frontmatter import Fields, Value
from atomic.entities.model import FormatError
from tests.support.timing import judge

# Lines of front matter: many valid ones, and many that are almost valid.
KEYS = st.sampled_from(["name", "tools", "argument-hint", "x-1", "Key", "_a", "1a", "a b", '"q"', "<<", "é"])
WORDS = st.text(st.sampled_from("aB1-_./:#'\"[]{},&*!|>%@`?~ \té🚀\u2028\x85\\=$(<+"), max_size=12)
SCALARS = WORDS | st.sampled_from(
    [
        "true",
        "no",
        "1.0",
        "~",
        "null",
        "[a, b]",
        "['a', \"b\"]",
        "[]",
        "[a,]",
        '"a b"',
        "'it''s'",
        "a: b",
        "a #b",
        "a#b",
    ]
)
LINES = st.one_of(
    st.builds("{}: {}".format, KEYS, SCALARS),
    st.builds("{}:".format, KEYS),
    st.builds("{}- {}".format, st.sampled_from(["", " ", "  "]), SCALARS),
    st.builds("  {}: {}".format, KEYS, SCALARS),
    st.sampled_from(["", "# a comment", "  # another", "  more text", "...", " "]),
)
BLOCKS = st.lists(LINES, max_size=6).map("\n".join)


@settings(max_examples=1500)
@given(BLOCKS)
@example("tools:\n- a\n- b\nname: x")
@example("tools:\n  bash: true\n  write: false")
@example("a: b\na: c")
@example("argument-hint: [a] # b")
def test_every_block_becomes_texts_lists_and_mappings_or_a_format_error(block: str) -> None:
    with suppress(FormatError):
        assert_plain(frontmatter.read(block))


def assert_plain(value: Value) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            assert type(key) is str
            assert_plain(item)
    elif isinstance(value, str):
        assert type(value) is str
    else:
        for item in value:
            assert_plain(item)


@pytest.mark.parametrize(
    ("block", "fields"),
    [
        ("a: on\nb: 1.0\nc: null\nd: 2024-01-01", {"a": "on", "b": "1.0", "c": "null", "d": "2024-01-01"}),
        ("a: >\n  one\n  two\nb: |\n  one\n  two", {"a": "one two\n", "b": "one\ntwo"}),
        ('a: "x\\ty"\nb: {c: [d, {e: f}]}', {"a": "x\ty", "b": {"c": ["d", {"e": "f"}]}}),
        ("a: 1\nb: 2\na: 3", {"a": "3", "b": "2"}),
        ("a: 1\n'a': 3", {"a": "3"}),
        ("a: x\n\tb: y", {"a": "x b: y"}),
        ("", {}),
        ("# only a comment", {}),
        # Not valid YAML: the text is taken literally.
        (
            "description: Use this when: always\ntools: [a, b]",
            {"description": "Use this when: always", "tools": "[a, b]"},
        ),
        ("description: *Important* thing\nname: x", {"description": "*Important* thing", "name": "x"}),
        ("description: @team `x`\nname: 'y'", {"description": "@team `x`", "name": "y"}),
        ("description: a: b\ntools:\n  - Read\n  - Edit", {"description": "a: b", "tools": ["Read", "Edit"]}),
        (
            "description: a: b\npermission:\n  edit: deny\n  bash:\n    '*': deny",
            {"description": "a: b", "permission": {"edit": "deny", "bash": {"*": "deny"}}},
        ),
        (
            "description: a: b\n  and more\nx: |\n  1\n  2\ny: >\n  1\n  2",
            {"description": "a: b and more", "x": "1\n2", "y": "1 2"},
        ),
        ("a: 1\na: b: c", {"a": "b: c"}),
    ],
)
def test_a_block_is_read_into_fields(block: str, fields: Fields) -> None:
    assert frontmatter.read(block) == fields


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("argument-hint: [file]", "[file]"),
        ("argument-hint: [file] [mode]", "[file] [mode]"),
        ("argument-hint: <issue #> | --all", "<issue #> | --all"),
        ('argument-hint: "[file]"', "[file]"),
        ("argument-hint: {a: b}", "{a: b}"),
        ("argument-hint: *", "*"),
        ("argument-hint: !x &y", "!x &y"),
        ("argument-hint: key: value", "key: value"),
        ("argument-hint: [é,\n  b]", "[é, b]"),
    ],
)
def test_an_argument_hint_is_the_source_text(line: str, hint: str) -> None:
    assert frontmatter.read(f"name: x\n{line}\ntools: {{a: true}}") == {
        "name": "x",
        "argument-hint": hint,
        "tools": {"a": "true"},
    }


@pytest.mark.parametrize(
    ("block", "line", "reason"),
    [
        ("a: &x [1]\nb: *x", 3, "alias"),
        ("a: !!python/object/apply:os.system ['true']", 2, "tag"),
        ("name: x\nb:\n  - !custom y", 4, "tag"),
        ("a: " + "[" * 1000 + "]" * 1000, 2, "deeper than 20"),
        ("\n".join(" " * level + "a:" for level in range(300)), 22, "deeper than 20"),
        ("a: x\nb: " + "y" * 65_536, 2, "64 KB"),
    ],
)
def test_a_block_beyond_the_limits_is_refused(block: str, line: int, reason: str) -> None:
    with pytest.raises(FormatError, match=reason) as caught:
        frontmatter.read(block)
    assert caught.value.line == line


def test_depth_twenty_and_64_kb_are_allowed() -> None:
    assert frontmatter.read("a: " + "[" * 19 + "]" * 19)
    assert len(frontmatter.read("b: " + "y" * (65_536 - 3))["b"]) == 65_533


BOMBS = {
    "laughs": "a0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)),
    **{
        name: (piece * 65_536)[:65_000]
        for name, piece in {
            "brackets": "[",
            "braces": "{",
            "dashes": "- ",
            "questions": "? ",
            "colons": "a: ",
            "quotes": "a: '''",
            "escapes": 'a: "\\',
            "anchors": "&a ",
            "blanks": " ",
            "lines": "\n",
            "items": " -\n",
            "tabs": "\t",
            "hints": "argument-hint: \n",
            "letters": "a",
        }.items()
    },
}


@pytest.mark.timed
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_hostile_block_is_read_or_refused_quickly(bomb: str) -> None:
    for block in (bomb, f"a: {bomb}", f"a: b: c\n{bomb}"):
        start = process_time()
        frontmatter.split(f"---\n{block}\n---\n")
        with suppress(FormatError):
            frontmatter.read(block[:65_536])
        judge(process_time() - start, 1.5)


@pytest.mark.parametrize(
    ("text", "block", "body"),
    [
        ("---\na: b\n---\nbody\n", "a: b\n", "body\n"),
        ("---\r\na: b\r\n---\r\nbody\r\n", "a: b\n", "body\n"),
        ("\ufeff---\na: b\n---\nbody", "a: b\n", "body"),
        ("--- \na: b\n---  \nbody", "a: b\n", "body"),
        ("---\n---\nbody", "", "body"),
        ("---\na: b\n---", "a: b\n", ""),
        ("---\na: x --- y\n---\n---\nbody", "a: x --- y\n", "---\nbody"),
        ("no front matter\n---\nx", None, "no front matter\n---\nx"),
        ("---\na: b\nbody", None, "---\na: b\nbody"),
        ("---\nJust a ruled paragraph.\n---\nbody", None, "---\nJust a ruled paragraph.\n---\nbody"),
        ("\ufeffbody", None, "body"),
        ("", None, ""),
    ],
)
def test_front_matter_and_body_are_split(text: str, block: str | None, body: str) -> None:
    parts = frontmatter.split(text)
    assert (parts.block, parts.body) == (block, body)


def test_the_result_is_the_same_without_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    from atomic.entities import yaml_events

    block = "a: >\n  one\n  two\nb: {c: [d]}\nargument-hint: [é,\n  x]"
    quick = yaml_events.read_yaml(block)
    monkeypatch.setattr(yaml_events, "_LOADER", yaml.SafeLoader)
    assert yaml_events.read_yaml(block) == quick == {"a": "one two\n", "b": {"c": ["d"]}, "argument-hint": "[é, x]"}
    with pytest.raises(FormatError, match="alias"):
        yaml_events.read_yaml("a: *x")
