"""Tab in a shell: the candidates, without running code of a project, and quickly."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from atomic.cli.completion import script_for
from tests.support.entity_files import agent, skill, write
from tests.support.session_folders import make_session
from tests.support.terminal import in_terminal
from tests.support.timing import judge
from tests.support.user import ATOMIC, User, complaint, cpu_seconds

CPU_LIMIT = 0.150  # seconds

EVIL = 'open({canary!r}, "w").close()\nname = "evil"\nraise SystemExit(3)\n'


async def offered(user: User, *words: str) -> list[str]:
    """Return the candidates of `atomic complete`."""
    done = await user.atomic("complete", *words)
    assert (done.exit_code, done.stderr) == (0, "")
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


def workflow(user: User, file: str, text: str) -> Path:
    return write(user.project / ".atomic" / "workflows" / file, text)


async def test_verbs_and_their_own_verbs_and_flags(user: User) -> None:
    assert {"sessions", "tasks", "doctor", "completion"} <= {*await offered(user, "")}
    assert await offered(user, "ses") == ["sessions"]
    assert await offered(user, "sessions", "") == ["list", "show", "report", "result", "export", "prune"]
    assert await offered(user, "sessions", "prune", "--o") == ["--older-than"]
    assert "--version" in await offered(user, "--")
    assert "complete" not in await offered(user, "")


async def test_shorthands_complete_like_what_they_stand_for(user: User) -> None:
    id = make_session(user.home)
    assert await offered(user, "ralph", "--review-r") == ["--review-rounds"]
    assert await offered(user, "ps", "--st") == ["--status"]
    assert await offered(user, "logs", "") == [id]
    assert await offered(user, "status", "") == [id]
    assert await offered(user, "help", "ral") == ["ralph"]
    assert "ralph" in await offered(user, "workflows", "dev", "")
    (user.project / "flow.py").write_text("default_config = {'times': 1}\n")
    assert await offered(user, "run", "./flow.py", "--ti") == ["--times"]


async def test_values_of_flags(user: User) -> None:
    assert await offered(user, "sessions", "list", "--status", "pa") == ["paused"]
    assert await offered(user, "sessions", "list", "--status=pa") == ["--status=paused"]
    assert await offered(user, "-p", "--agent", "co") == ["copilot", "codex"]
    assert await offered(user, "login", "co") == ["copilot", "codex"]
    assert "acp:" in await offered(user, "-p", "--agent", "")
    assert "acp:" not in await offered(user, "login", "")
    assert await offered(user, "completion", "") == ["bash", "zsh", "fish"]


async def test_names_of_workflows_entities_and_sessions(user: User) -> None:
    workflow(user, "first.py", 'name = "my-flow"\n')
    workflow(user, "second.py", "x = 1\n")
    workflow(user, "_helper.py", "")
    write(user.home / ".atomic" / "workflows" / "mine.py", "name: str = 'of-mine'\n")
    assert await offered(user, "workflows", "show", "") == ["my-flow", "second", "of-mine", "ralph", "loop"]
    skill(user.project / ".claude", "tidy", "Tidy up.")
    agent(user.project / ".claude", "gardener", "You garden.")
    assert await offered(user, "entities", "show", "tid") == ["tidy"]
    assert await offered(user, "entities", "show", "gard") == ["gardener"]
    id = make_session(user.home)
    assert await offered(user, "sessions", "show", id[:3]) == [id]
    assert await offered(user, "sessions", "report", "") == [id]


async def test_file_names_are_left_to_the_shell(user: User) -> None:
    assert await offered(user, "tasks", "show", "") == []
    assert await offered(user, "sessions", "export", "0f9b2c1e", "") == []
    assert await offered(user, "no-such-verb", "") == []


async def test_nothing_of_a_project_runs(user: User, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    workflow(user, "evil.py", EVIL.format(canary=str(canary)))
    for name in ("json", "re", "ast", "sitecustomize", "usercustomize"):
        write(user.project / f"{name}.py", EVIL.format(canary=str(canary)))
    for words in (("",), ("run", ""), ("workflows", "show", ""), ("entities", "show", ""), ("sessions", "show", "")):
        await offered(user, *words)
    assert "evil" in await offered(user, "workflows", "show", "")
    assert not canary.exists()


@pytest.mark.parametrize("name", ["$(touch canary)", "a;b", "`x`", "a b", "a\\x1b[31m", "-rf", "a|b", "*"])
async def test_a_name_that_a_shell_could_take_for_more_is_not_offered(user: User, name: str) -> None:
    workflow(user, "w.py", f'name = "{name}"\n')
    assert await offered(user, "workflows", "show", "") == ["ralph", "loop"]


async def test_odd_files_do_not_hold_it_up(user: User) -> None:
    folder = workflow(user, "good.py", "").parent
    os.mkfifo(folder / "pipe.py")
    (folder / "bytes.py").write_bytes(b"\xff\xfe\0" * 1000)
    (folder / "gone.py").symlink_to("/nowhere")
    (folder / "folder.py").mkdir()
    assert "good" in await offered(user, "workflows", "show", "g")


async def test_a_description_cannot_write_to_the_terminal(user: User) -> None:
    make_session(user.home, prompt="a\x1b]0;title\x07\tb\nc")
    done = await user.atomic("complete", "sessions", "show", "")
    assert "\x1b" not in done.stdout
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.ci
@pytest.mark.timed
@pytest.mark.parametrize(
    "words", [("",), ("sessions", "show", ""), ("workflows", "show", ""), ("entities", "show", "")]
)
def test_it_is_quick(user: User, words: tuple[str, ...]) -> None:
    for number in range(20):
        workflow(user, f"flow{number}.py", 'name = "x"\n' + "y = 1\n" * 200)
    for number in range(1000):
        (user.home / ".atomic" / "sessions" / f"{number:08x}-0000-4000-8000-000000000000").mkdir(parents=True)
    judge(min(cpu_seconds(user, "complete", *words) for _ in range(5)), CPU_LIMIT)


def bash_offers(user: User, line: str) -> list[str]:
    """Return the candidates that bash shows at the end of a line."""
    code = (
        'source <(atomic completion bash); complete -p atomic >/dev/null || exit 9; COMP_LINE="$1" COMP_POINT=${#1};'
        ' compopt() { :; }; _atomic; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    env = {**user.env, "PATH": f"{ATOMIC.parent}:{user.env['PATH']}"}
    said = subprocess.run(
        ["bash", "--norc", "-c", code, "bash", line],
        cwd=user.project,
        env=env,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert (said.returncode, said.stderr) == (0, "")
    return said.stdout.split()


@pytest.mark.ci
def test_bash_offers_what_atomic_does(user: User) -> None:
    workflow(user, "first.py", 'name = "my-flow"\n')
    assert bash_offers(user, "atomic ses") == ["sessions"]
    assert bash_offers(user, "atomic sessions ") == ["list", "show", "report", "result", "export", "prune"]
    assert bash_offers(user, "atomic workflows show my") == ["my-flow"]
    assert bash_offers(user, "atomic tasks show ") == []
    # After : and = readline wants only the rest.
    assert bash_offers(user, "atomic sessions list --status=pau") == ["paused"]
    assert bash_offers(user, "atomic -p --agent acp") == ["acp:"]


async def test_a_real_bash_completes_at_tab(user: User) -> None:
    env = {**user.env, "PATH": f"{ATOMIC.parent}:{user.env['PATH']}", "TERM": "dumb"}
    script = user.home / "completion"
    script.write_text(script_for("bash") + "PS1='ready: '\n")
    async with in_terminal(["bash", "--noprofile", "--rcfile", script, "-i"], env=env, cwd=user.project) as terminal:
        await terminal.shows("ready: ")
        terminal.type("atomic sess\t--hel\t\n")
        await terminal.shows("atomic sessions: list, show, export and delete runs")
        terminal.type("exit\n")
        assert await terminal.exit_code() == 0


@pytest.mark.ci
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_completion_prints_the_script(user: User, shell: str) -> None:
    done = await user.atomic("completion", shell)
    assert (done.exit_code, done.stdout, done.stderr) == (0, script_for(shell), "")


async def test_nothing_is_installed_without_a_home_folder(user: User) -> None:
    user.env["HOME"] = ""
    done = await user.atomic("completion", "--install", "--dry-run", "zsh")
    assert (done.exit_code, "HOME is not set" in complaint(done)) == (1, True)


async def test_a_shell_that_is_not_known_is_named(user: User) -> None:
    done = await user.atomic("completion", "tcsh")
    assert done.exit_code == 2
    assert "bash, zsh, fish" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_can_be_parsed(shell: str) -> None:
    """By the shell itself where it is installed; else zsh's by bash, which has the same grammar for all it uses."""
    program = shell if shutil.which(shell) else {"zsh": "bash"}.get(shell)
    if program is None:
        assert_blocks_end(script_for(shell))
        return
    said = subprocess.run([program, "-n"], input=script_for(shell), capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stderr) == (0, "")


def assert_blocks_end(script: str) -> None:
    """Check that blocks, quotes and parentheses of a fish script are closed."""
    depth = 0
    for line in script.splitlines():
        words = line.split("#")[0].split()
        depth += bool(words) and words[0] in ("function", "if", "for", "while", "switch", "begin")
        depth -= words == ["end"]
        assert depth >= 0
        assert line.count("'") % 2 == 0
        assert line.count("(") == line.count(")")
    assert depth == 0


@pytest.mark.parametrize("broken", ["function x\n", "end\n", "echo 'x\n", "set y (x\n"])
def test_the_check_of_fish_scripts_finds_errors(broken: str) -> None:
    with pytest.raises(AssertionError):
        assert_blocks_end(script_for("fish") + broken)
