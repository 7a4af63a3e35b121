"""`atomic login` starts the login of an agent, in a terminal."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest

from atomic.processes import execute
from tests.support.user import ATOMIC, User, complaint

# Prints its words and its folder, and whether it has the terminal.
PROGRAM = """
import os, sys
print("words:", *sys.argv[1:])
print("folder:", os.getcwd())
print("terminal:", os.isatty(0) and os.isatty(1))
print("input:", input())
sys.exit(7)
"""


def in_terminal(user: User, *words: str, typed: str = "hello\n") -> tuple[int, str]:
    """Run `atomic` in a terminal and return its exit code and what the screen got."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(user.project)
        os.execve(ATOMIC, [str(ATOMIC), *words], user.env)
    os.write(terminal, typed.encode())
    screen = b""
    try:
        while piece := os.read(terminal, 65536):
            screen += piece
    except OSError:  # the terminal of a process that has ended
        pass
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), screen.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("agent", "program", "words"),
    [
        ("claude", "claude", "auth login"),
        ("opencode", "opencode", "auth login"),
        ("copilot", "copilot", "login"),
        ("codex", "codex", "login"),
        ("gemini", "gemini", ""),
        ("acp:codex", "codex", "login"),
        ("vibe", "vibe", "--setup"),
    ],
)
async def test_the_terminal_is_handed_over_to_the_agents_own_login(
    user: User, agent: str, program: str, words: str
) -> None:
    user.has(program, PROGRAM)
    code, screen = in_terminal(user, "login", agent)
    assert code == 7
    assert f"words: {words}".strip() in screen
    assert "terminal: True\n" in screen
    assert "input: hello\n" in screen
    # Not in the project, whose code an agent could run.
    assert f"folder: {user.home}\n" in screen


async def test_the_program_of_an_adapters_package_logs_in_without_being_on_path(user: User) -> None:
    package = user.home / "lib" / "node_modules" / "@agentclientprotocol" / "codex-acp"
    for path, code in (
        (package / "dist" / "index.js", "raise SystemExit('not this one')"),
        (package / "node_modules" / "@openai" / "codex" / "bin" / "codex.js", PROGRAM),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(f"#!{sys.executable} -S\n{code}")
        path.chmod(0o755)
    (user.bin / "codex-acp").symlink_to(package / "dist" / "index.js")
    code, screen = in_terminal(user, "login", "codex")
    assert (code, "words: login\n" in screen) == (7, True)


async def test_without_a_terminal_it_names_the_command(user: User) -> None:
    user.has("codex", PROGRAM)
    done = await user.atomic("login", "codex")
    message = f"There is no terminal to log in with: run atomic login codex, or {user.bin}/codex login, in one"
    assert (done.exit_code, complaint(done), done.stdout) == (2, message, "")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["codx"], 2, 'Unknown agent: "codx" (did you mean "codex"?)'),
        (["replay:x"], 2, 'Unknown agent: "replay:x" (known: claude, opencode, copilot, codex, gemini, '),
        (["gemini"], 1, "gemini: the program 'gemini' is not installed (npm install -g @google/gemini-cli)"),
        (
            ["codex"],
            1,
            "codex: the program 'codex-acp' is not installed (npm install -g @agentclientprotocol/codex-acp)",
        ),
        (["claude"], 1, "claude: the program 'claude' is not installed (npm install -g @anthropic-ai/claude-code)"),
        (
            ["acp:mine"],
            2,
            'Atomic does not know how to log in to "acp:mine": log in with its own program, mine-agent',
        ),
        ([], 2, "atomic login needs an AGENT: atomic login AGENT"),
    ],
)
async def test_an_unknown_or_missing_agent_gets_one_sentence(
    user: User, words: list[str], code: int, message: str
) -> None:
    user.has_no_agents()
    user.sets('[acp.mine]\ncommand = ["mine-agent"]\n')
    done = await user.atomic("login", *words)
    assert done.exit_code == code
    assert complaint(done).startswith(message)


async def test_a_program_that_cannot_start_is_reported(user: User) -> None:
    program = user.has("codex", "")
    program.write_text("#!/nowhere/interpreter\n")
    code, screen = in_terminal(user, "login", "codex")
    assert (code, screen.splitlines()[-1]) == (
        1,
        f"atomic: codex: {program} cannot be started: No such file or directory",
    )


@pytest.mark.ci
async def test_the_bundled_claude_logs_in_without_being_on_path(user: User) -> None:
    """The wheel of Claude Code's SDK brings the program."""
    done = await execute(sys.executable, "-c", "import claude_agent_sdk; print(claude_agent_sdk.__file__)", timeout=60)
    program = Path(done.stdout.strip()).parent / "_bundled" / "claude"
    result = await user.atomic("login", "claude")
    assert result.exit_code == 2
    assert f"{program} auth login" in complaint(result)
