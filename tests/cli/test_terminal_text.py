"""Untrusted text reaches a terminal only as plain text."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.entity_files import skill
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, User
from tests.support.user_workflows import call, end, recording, sessions, text, workflow
from tests.support.window import window

EVIL = (
    "\x1b]52;c;b3duZWQ=\x07\x1b[2J\x9b31m\x9d0;owned\x9c\x7f\x08\r\u202egpj\u2066x\u061cy\u200bz\u2060\ufeff\u00ad\u180e"
    "\u2028\U000e0041"
)
FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f \u06cc\u200c\u0645"  # and a Persian joiner
UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
    "|[\U000e0000-\U000e0fff]|\r(?!\n)"
)
TASKS = [{"id": "1", "title": f"Do {EVIL}", "status": "pending", "description": EVIL}]
LINES = (
    ("tasks", "show", "t.json"),
    ("tasks", "next", "t.json"),
    ("tasks", "check", "t.json"),
    ("tasks", "show", "t.json", "--json"),
    ("tasks", "next", "t.json", "--json"),
    ("tasks", "check", "t.json", "--json"),
    ("tasks", "convert", "t.json"),
    ("entities", "list"),
    ("entities", "list", "--json"),
    ("entities", "show", "evil"),
    ("entities", "show", "evil", "--json"),
    ("config",),
    ("config", "--json"),
    ("workflows", "list"),
    ("workflows", "list", "--json"),
    ("sessions", "list"),
    ("sessions", "list", "--json"),
    ("sessions", "show", "ID"),
    ("sessions", "show", "ID", "--json"),
    ("sessions", "report", "ID"),
    ("mcp", "list"),
    ("mcp", "list", "--json"),
    ("trust", "--show"),
    ("trust", "--show", "--json"),
    ("complete", "run", "ev"),
)
FLOW = """
name = "evil"
description = "EVIL"
async def first(ctx):
    ctx.emit("warning", {"text": ctx.state.prompt})
    return {"said": [await ctx.deps.turn(ctx.state.prompt)]}
async def broken(ctx):
    raise ValueError(ctx.state.prompt)
workflow = graph(S).node("first", first, description="Begin EVIL").node("broken", broken).compile()
"""


@pytest.fixture
async def told(user: User) -> User:
    """Give a user hostile text in all places that verbs show, and a run of it."""
    (user.project / "t.json").write_text(json.dumps(TASKS), encoding="utf-8")
    skill(user.home / ".claude", "evil", f"Do {EVIL}", head=f"description: {json.dumps(EVIL)}\n")
    user.project_sets(f"theme = {json.dumps(EVIL[:9])}\n[{json.dumps('evil' + EVIL[:9])}]\nx = 1\n")
    written = ascii(EVIL)[1:-1]
    workflow(user, "evil", FLOW.replace("EVIL", written))
    agent = recording(user, call(text(EVIL), end(EVIL)))
    done = await user.atomic("run", "--agent", agent, "--json", "evil", EVIL)
    assert done.exit_code == 1, done.stderr
    assert UNSAFE.search(done.stdout + done.stderr) is None
    events = [json.loads(line).get("event", {}) for line in done.stdout.splitlines()]
    assert EVIL in [event.get("text") for event in events], "JSON keeps its meaning"
    return user


async def test_no_verb_writes_control_characters_to_a_terminal(told: User) -> None:
    (session,) = sessions(told)
    for words in LINES:
        line = [session.name if word == "ID" else word for word in words]
        done = await told.atomic(*line)
        assert done.stdout, (line, done.stderr)
        found = UNSAFE.search(done.stdout + done.stderr)
        assert found is None, (line, found)
        if "--json" in line:
            json.loads(done.stdout)


async def test_files_for_users_contain_no_escapes(told: User) -> None:
    (session,) = sessions(told)
    for name in ("progress.txt", "report.md", "logs/errors.log"):
        file = session / name
        if file.exists():
            found = UNSAFE.search(file.read_text(encoding="utf-8"))
            assert found is None, (name, found)
    assert "Begin" in (session / "progress.txt").read_text(encoding="utf-8")
    assert (session / "logs" / "errors.log").exists()


async def test_an_answer_on_a_terminal_is_text_and_keeps_its_emoji(user: User) -> None:
    pieces = [text(part) for part in (EVIL, FAMILY[:1], FAMILY[1:2], FAMILY[2:])]
    agent = recording(user, call(*pieces, end()))
    async with in_terminal([ATOMIC, "-p", "hi", "--agent", agent], env=user.env, cwd=user.project) as terminal:
        await terminal.shows(FAMILY)
        assert await terminal.exit_code() == 0
    assert UNSAFE.search(terminal.screen) is None
    assert "]52;c;" in terminal.screen, "it was shown"


async def test_a_plain_chat_keeps_emoji_and_obeys_nothing(user: User) -> None:
    agent = recording(user, call(text(f"{EVIL} {FAMILY}\n"), end()))
    done = await user.atomic("chat", "--plain", "--agent", agent, input="hi\n")
    assert FAMILY in done.stdout, done.stderr
    assert UNSAFE.search(done.stdout) is None


@pytest.mark.parametrize(
    "config",
    ["theme = {}", "{} = 1", "[keys]\n{} = 'x'", "theme = 'dark'\n[caps]\n{} = 1"],
    ids=["theme", "key", "keys", "nested"],
)
def test_a_clones_configuration_writes_neither_clipboard_nor_title(user: User, config: str) -> None:
    evil = json.dumps("\x1b]52;c;b3duZWQ=\x1b\\\x1b]0;owned\x07\x9d0;owned\x9c")
    user.project_sets(config.format(evil) + "\n")
    agent = recording(user, call(end("ok")))
    words = (ATOMIC, "--agent", agent)
    with window(words, env=user.env, cwd=user.project, columns=160) as screen:
        screen.shows("52;c;b3duZWQ=")  # the message is there, as text
        log = bytes(screen.log).decode("utf-8", "replace")
        screen.type("\x03\x03")
        screen.exit_code()
    assert "\x1b]52;" not in log
    assert "]0;owned\x07" not in log
    assert "\x9d" not in log
