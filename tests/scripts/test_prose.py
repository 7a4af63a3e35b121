from __future__ import annotations

from pathlib import Path

import pytest

from scripts import prose

MODULE = '''"""Nobody reads this."""

import re


def first(path):
    """Return the first line.

    The rest stands
    in the file.
    """
    # This goes
    # on below.
    return path  # noqa: nobody


def second():
    """The second line."""  # None if there is None
    raise ValueError(
        "The file could not be read "
        f"and {first} is told so"
    )


class Reader:
    """A reader."""

    @property
    def name(self):
        """The name."""
        return "nobody"


def test_somebody_opens_a_file():
    """A claim needs no verb."""
'''


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write(tmp_path / "src" / "atomic" / "cli" / "reader.py", MODULE)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def report(root: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    prose.main(list(arguments), root)
    return capsys.readouterr().out.splitlines()


def test_markers_are_found_in_docstrings_comments_and_messages(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = report(repository, capsys, "--room", "cli", "--show", "9")
    places = {line.split(" | ")[0] for line in output if line.startswith("src")}
    assert places == {
        "src/atomic/cli/reader.py:1: Nobody",
        "src/atomic/cli/reader.py:9: stands",
        "src/atomic/cli/reader.py:12: goes on",
        "src/atomic/cli/reader.py:21: told",
    }


def test_a_rate_is_markers_per_thousand_words(tmp_path: Path) -> None:
    write(tmp_path / "README.md", "nobody " + "word " * 249)
    assert prose.measure(tmp_path)["README.md"].rate == 4.0


def test_names_of_tests_are_a_room_of_their_own(repository: Path) -> None:
    names = prose.measure(repository)["names of cli"]
    assert (names.words, names.markers) == (5, 1)


def test_code_in_markdown_is_not_prose(tmp_path: Path) -> None:
    text = "One `nobody` and [two](nobody.md).\n\n```sh\n'`' nobody\n\nwhoever\n```\n\nThree somebody.\n"
    write(tmp_path / "docs" / "guide.md", text)
    room = prose.measure(tmp_path)["docs"]
    assert [(passage.line_of(match), match[0]) for passage, found in room.places for match in found] == [
        (9, "somebody")
    ]
    assert room.words == 5


def test_prompts_are_apart_from_the_code_of_their_room(repository: Path) -> None:
    write(repository / "src" / "atomic" / "cli" / "agents" / "worker.md", "You speak.")
    assert prose.measure(repository)["prompts"].words == 2


def test_docstrings_of_functions_begin_with_a_verb(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = report(repository, capsys, "--room", "cli", "--nouns", "9")
    assert output[-1] == "src/atomic/cli/reader.py:17: The second line."
    room = prose.measure(repository)["cli"]
    assert (room.docstrings, len(room.nouns)) == (2, 1)


@pytest.mark.parametrize(
    "docstring",
    ["Return it.", "Returns it.", "Copies it.", "Lazily load it.", "Re-open it.", "Don't wait.", "Note that it ends."],
)
def test_a_verb_is_recognised(docstring: str) -> None:
    assert prose.begins_with_verb(docstring)


@pytest.mark.parametrize(
    "docstring",
    ["The file.", "What it is.", "Whether it ended.", "Name of the file.", "Runs that ended.", "`x` of it.", ""],
)
def test_a_noun_is_not_a_verb(docstring: str) -> None:
    assert not prose.begins_with_verb(docstring)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The file cannot be read", True),
        ("src/atomic/cli", False),
        ("in the file", False),
        ("bold red on blue", True),  # known: a style reads like a sentence
        ("SELECT ID FROM RUNS WHERE ID = 1", False),
        ("import os\nfor name in os.listdir():\n    print(name)\n", False),
    ],
)
def test_a_message_reads_like_a_sentence(text: str, expected: bool) -> None:
    assert prose.is_message(text) is expected


def test_a_room_above_the_maximum_fails(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository / "README.md", "Plain text.")
    assert prose.main(["--max", "6"], repository) == 1
    assert capsys.readouterr().err == "\nMore than 6 markers per 1,000 words: cli, names of cli\n"
    assert prose.main(["--max", "6", "--room", "README.md"], repository) == 0
    assert prose.main([], repository) == 0


def test_an_unknown_room_is_an_error_that_lists_the_rooms(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        prose.main(["--room", "cl"], repository)
    assert raised.value.code == 2
    assert 'no room "cl"; choose one of: cli, names of cli' in capsys.readouterr().err


def test_other_folders_are_measured_as_rooms(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = report(repository, capsys, str(repository / "src"))
    assert [line.split("  ")[0] for line in output] == ["room", "src", "names of src", "all"]
