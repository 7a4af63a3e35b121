"""Command lines: flags, then words, and a prompt that may contain anything."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.base.arguments import UsageError, parse
from atomic.base.flags import ConfigFlag, Flag
from atomic.cli.verbs import TURN

FLAGS = {"--agent": "claude", "--model": "opus", "--output": "json", "--record": "x.jsonl"}


def read(*words: str) -> tuple[dict[str, str], str]:
    """Return the flags and the prompt."""
    arguments = parse(words, TURN)
    given = {name: value for name in FLAGS if (value := arguments.value(name)) is not None}
    assert arguments.has("-p")
    return given, " ".join(word for word in (arguments.value("-p"), *arguments.words) if word)


@pytest.mark.parametrize(
    "words",
    [
        ["-p", "fix it", "--agent", "claude"],
        ["-p", "--agent", "claude", "fix it"],
        ["--agent", "claude", "-p", "fix it"],
        ["-a", "claude", "-p", "fix", "it"],
        ["-p", "--agent=claude", "fix", "it"],
        ["-p", "-a", "copilot", "-a", "claude", "--", "fix", "it"],
    ],
)
def test_the_prompt_may_follow_p_or_come_last(words: list[str]) -> None:
    assert read(*words) == ({"--agent": "claude"}, "fix it")


@pytest.mark.parametrize(
    ("words", "prompt"),
    [
        (["-p", "- tidy up"], "- tidy up"),
        (["-p", "--verbose flags are ugly, remove them"], "--verbose flags are ugly, remove them"),
        (["-p", "--", "--agent"], "--agent"),
        (["-p", "--", "--", "-p"], "-- -p"),
        (["-p", "explain", "--agent", "claude", "a --flag"], "explain a --flag"),
        (["-p", "a", "b", "--agent", "claude"], "a b --agent claude"),
        (["-p", "-"], "-"),
    ],
)
def test_a_prompt_may_look_like_a_flag(words: list[str], prompt: str) -> None:
    assert read(*words)[1] == prompt


@given(st.dictionaries(st.sampled_from(sorted(FLAGS)), st.booleans()), st.lists(st.text(min_size=1)))
def test_every_word_after_the_dashes_is_kept(flags: dict[str, bool], words: list[str]) -> None:
    given_flags = [f"{name}={FLAGS[name]}" if joined else f"{name} {FLAGS[name]}" for name, joined in flags.items()]
    line = [*(word for flag in given_flags for word in flag.split(" ")), "-p", "--", *words]
    assert read(*line) == ({name: FLAGS[name] for name in FLAGS if name in flags}, " ".join(words))


@given(st.lists(st.text(alphabet="-=ap h", max_size=4)))
def test_every_line_is_read_or_refused(words: list[str]) -> None:
    with suppress(UsageError):
        rest = parse(words, TURN).words
        assert rest == words[len(words) - len(rest) :]


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        (Flag("--max-cost", value="USD", help=""), 'cannot be "-1": a negative value is not allowed (--max-cost USD)'),
        (ConfigFlag("--n", "n", 3, kind="int", value="N", help=""), "write a negative one as --n=-1"),
    ],
)
def test_a_negative_value_is_not_called_a_missing_one(flag: Flag, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        parse([flag.name, "-1", "x"], (flag,))
