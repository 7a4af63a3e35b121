"""An untrusted repository: no command runs its code before the user trusts it."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from atomic.cli.verbs import VERBS, Verb
from atomic.processes import ExecResult, execute
from tests.hostile.repositories import PROJECTS, HostileProject
from tests.support.user import User
from tests.support.waits import HANG

AT_ONCE = 2
SECONDS = HANG  # for one command
WORDS = {"ID": "12345678", "SHELL": "bash", "FILE": "tasks.json", "HASH": "0" * 64, "ANSWER": "yes"}
COMMON = (["workflows", "list"], ["trust", "--show"], ["run", "evil", "x"])
REPRESENTATIVE = ("workflow_with_code",)
RUNS_WHEN_TRUSTED = (
    "workflow_with_code", "workflow_whose_description_is_a_call", "tool_with_code", "packages_with_code",
    "names_that_atomic_uses", "an_approval_of_its_own",
)  # fmt: skip
HAS_ITEMS = {
    "servers_of_all_dialects": "mcp",
    "hooks_of_all_agents": "hook",
    "plugins_of_all_agents": "plugin",
    "config_with_gates": "gate",
    "a_setup_for_worktrees": "workspace-setup",
    "tool_with_code": "tool",
    "workflow_with_code": "workflow",
}
# `make test-ci` visits those that bring code, and in tests/hostile all of them; `make test-full` all of them here too.
ALL = [
    pytest.param(name, marks=() if name in {*RUNS_WHEN_TRUSTED, *HAS_ITEMS} else pytest.mark.full) for name in PROJECTS
]


def every_command() -> list[list[str]]:
    """Return a command line for each verb, one with `--help`, and those of a shell's Tab."""
    commands = [["--help"], ["--version"], [], ["-p", "hi"], ["-p", "/help"], ["-p", "/evil x"], ["-p", "@evil x"]]
    for verb in _verbs(VERBS.values()):
        path = verb.path.split()
        words = [WORDS.get(word.strip("[].").upper(), "evil") for word in verb.words]
        flags = [flag.name for flag in verb.flags if not flag.value and flag.name in ("--json", "--show")]
        commands += [[*path, "--help"], [*path, *words], [*path, *flags, *words]]
    for begun in (
        ["run", ""],
        ["workflows", "show", ""],
        ["workflows", "graph", "e"],
        ["resume", ""],
        ["-a", ""],
        ["ent"],
    ):
        commands.append(["complete", *begun])
    return commands


def _verbs(verbs: Iterable[Verb]) -> Iterator[Verb]:
    for verb in verbs:
        yield from verb.verbs.values() if verb.verbs else (verb,)


class Visit:
    """A user in an untrusted project."""

    def __init__(self, folder: Path, name: str) -> None:
        self.user = User(folder)
        self.user.has_no_agents()
        self.canary = folder / "canary"
        PROJECTS[name](HostileProject(self.user.project, self.canary))

    async def try_all(self, commands: Sequence[Sequence[str]]) -> list[ExecResult]:
        """Run commands, a few at a time."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(words: Sequence[str]) -> ExecResult:
            async with gate:
                done = await self.user.atomic(*words, input="", timeout=SECONDS)
            assert not self.canary.exists(), f"atomic {' '.join(words)} has run the stranger's code"
            said = done.stdout + done.stderr
            assert "Traceback" not in said, (words, said)
            assert "internal error" not in said, (words, said)
            for_people = done.stderr if "--json" in words else said  # in JSON they are data
            assert not set(for_people) & {"\x1b", "\x07", "\u202e", "\x9b"}, (words, said)
            return done

        return list(await asyncio.gather(*(one(words) for words in commands)))


def test_at_least_thirty_hostile_projects_are_tested() -> None:
    assert len(PROJECTS) >= 30
    assert len(every_command()) >= 60


@pytest.mark.ci
@pytest.mark.parametrize("name", ALL)
async def test_nothing_runs_in_a_strangers_project(tmp_path: Path, name: str) -> None:
    visit = Visit(tmp_path, name)
    done = await visit.try_all(COMMON)
    assert [one.exit_code for one in done[:2]] == [0, 0]


@pytest.mark.ci
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in REPRESENTATIVE else pytest.mark.full) for name in PROJECTS]
)
async def test_no_command_runs_untrusted_code(tmp_path: Path, name: str) -> None:
    visit = Visit(tmp_path, name)
    await visit.try_all(every_command())


@pytest.mark.parametrize("name", RUNS_WHEN_TRUSTED)
async def test_the_canary_sings_once_it_is_trusted(tmp_path: Path, name: str) -> None:
    """Else the others would show nothing."""
    visit = Visit(tmp_path, name)
    (shown,) = await visit.try_all([["trust", "--show", "--json"]])
    digest = msgspec.json.decode(shown.stdout)["hash"]
    await visit.user.atomic("workflows", "check", "--trust", digest)
    assert visit.canary.exists()


@pytest.mark.parametrize("name", HAS_ITEMS)
async def test_all_code_is_shown_before_it_is_trusted(tmp_path: Path, name: str) -> None:
    visit = Visit(tmp_path, name)
    (shown,) = await visit.try_all([["trust", "--show", "--json"]])
    found = msgspec.json.decode(shown.stdout)
    assert not found["trusted"]
    kinds = {item["kind"] for item in found["items"]}
    assert HAS_ITEMS[name] in kinds
    assert str(visit.canary) in str([item["diff"] for item in found["items"]])
    assert "4hT9xQ2mB7nL0vK3zW8c" not in shown.stdout


async def test_a_forbidden_key_is_named_with_file_and_line(tmp_path: Path) -> None:
    visit = Visit(tmp_path, "config_with_programs_and_endpoints")
    (done,) = await visit.try_all([["-p", "hi"]])
    config = visit.user.project / ".atomic" / "config.toml"
    for line, key in ((2, "editor"), (3, "trust"), (4, "api_key"), (5, "endpoint"), (7, "providers.claude.path")):
        assert f'{config}:{line}: "{key}" is ignored' in done.stderr


@pytest.mark.ci
async def test_python_dash_m_does_not_take_a_strangers_modules(tmp_path: Path) -> None:
    visit = Visit(tmp_path, "shadows_in_the_project")
    for name in ("runpy", "encodings", "site", "os", "sys"):  # those Python itself would take before we are asked
        (visit.user.project / f"{name}.py").unlink()
    done = await execute(
        sys.executable, "-m", "atomic", "workflows", "list", cwd=visit.user.project, env=visit.user.env, timeout=SECONDS
    )
    assert done.exit_code == 0
    assert not visit.canary.exists()


@pytest.mark.ci
async def test_a_file_that_is_swapped_all_the_time_runs_as_it_was_approved_or_not_at_all(tmp_path: Path) -> None:
    visit = Visit(tmp_path, "workflow_with_code")
    file = visit.user.project / ".atomic" / "workflows" / "evil.py"
    ran = tmp_path / "ran"
    texts = (f"open({str(ran)!r}, 'a').close()\n", file.read_text())
    file.write_text(texts[0])
    (shown,) = await visit.try_all([["trust", "--show", "--json"]])
    digest = msgspec.json.decode(shown.stdout)["hash"]
    over = threading.Event()
    swapping = threading.Thread(target=_swap, args=(file, texts, over))
    swapping.start()
    try:
        done = await visit.try_all([["workflows", "check", "--trust", digest]] * 12)
    finally:
        over.set()
        swapping.join()
    assert {one.exit_code for one in done} <= {0, 4}
    await visit.try_all([["trust", "--show"]])
    file.write_text(texts[0])
    assert (await visit.user.atomic("workflows", "check", "--trust", digest)).exit_code == 0
    assert ran.exists()


def _swap(file: Path, texts: Sequence[str], over: threading.Event) -> None:
    other = file.with_suffix(".new")
    for text in itertools.cycle(texts):
        other.write_text(text)
        other.replace(file)
        if over.wait(0.001):
            return
