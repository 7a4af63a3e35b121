"""The help of the command, its usage errors, and the cost of a start."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import atomic
from atomic.cli.chat import NO_TERMINAL
from atomic.processes import execute
from tests.support.user import ATOMIC, SDKS, User, complaint


async def test_the_version_is_the_whole_answer(user: User) -> None:
    done = await user.atomic("--version")
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"atomic {atomic.__version__}\n", "")


@pytest.mark.parametrize("flag", ["--help", "-h"])
async def test_help_names_every_command_and_flag(user: User, flag: str) -> None:
    done = await user.atomic(flag)
    assert (done.exit_code, done.stderr) == (0, "")
    for word in (
        "-p",
        "doctor",
        "models",
        "entities",
        "mcp",
        "--agent",
        "--model",
        "--output",
        "--record",
        "--version",
        "--help",
    ):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 110


async def test_a_verb_has_help_of_its_own(user: User) -> None:
    done = await user.atomic("models", "--help")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "-a, --agent AGENT" in done.stdout


async def test_nothing_at_all_is_answered_with_help(user: User) -> None:
    done = await user.atomic()
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (await user.atomic("--help")).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("doctr", 'Unknown command: "doctr" (did you mean "doctor"?)'),
        ("loop x", 'Unknown command: "loop" (it is a workflow: atomic run loop "…")'),
        ("help nothing", 'Unknown command: "nothing" (atomic --help lists them)'),
        ("fix the bug", 'Unknown command: "fix" (atomic --help lists them; a prompt needs -p: atomic -p "…")'),
        ("--modle x -p y", 'Unknown flag: "--modle" (did you mean "--model"?)'),
        ("doctor --jsn", 'Unknown flag: "--jsn" (did you mean "--json"?)'),
        ("doctor -a claude", 'Unknown flag: "-a"'),
        ("doctor now", 'atomic doctor takes no "now" (atomic doctor --help)'),
        ("doctor --json=1", "--json takes no value"),
        ("-p hello --agent", "--agent needs a value: --agent AGENT"),
        ("-p hello --agent --model x", "--agent needs a value: --agent AGENT"),
        ("-p hello --output yaml", '--output cannot be "yaml": it is one of text, json, stream-json'),
        ("-p x --output=jsn", '--output cannot be "jsn" (did you mean "json"?): it is one of text, json, stream-json'),
        ("-p", 'No prompt: give it as in atomic -p "PROMPT", or pipe it in'),
        ("-p --", 'No prompt: give it as in atomic -p "PROMPT", or pipe it in'),
        ("-a claude", 'Nothing to do: atomic -p "PROMPT" runs one turn of an agent, atomic --help lists the rest'),
        ("-p x --theme dark", "--theme is a flag of the screen: leave out --theme, or -p"),
        ("--plain --output json", '--output only works with -p: atomic -p "PROMPT" --output FORMAT'),
        ("--plain --json", '--json only works with -p, or after a command: atomic -p "PROMPT" --json'),
        ("chat --theme x", '--theme cannot be "x": it is one of dark, light, ansi, contrast'),
        ("chat --port 80", "--port only works with --web: atomic --web --port PORT"),
        ("chat --web --port 70000", '--port cannot be "70000": it is a number up to 65535'),
        ("chat --web --plain", "--plain and --web are two ways to show a conversation: choose one"),
        ("chat", NO_TERMINAL),
    ],
)  # fmt: skip
async def test_a_wrong_command_line_is_one_line_and_exit_code_2(user: User, words: str, message: str) -> None:
    done = await user.atomic(*words.split(" "))
    assert (done.exit_code, complaint(done)) == (2, message)


async def test_an_untrusted_argument_cannot_control_the_terminal(user: User) -> None:
    done = await user.atomic("\x1b]0;title\x07\nnext")
    assert complaint(done).startswith('Unknown command: "␛]0;title␇ next"')


async def test_python_m_atomic_is_the_same_command(user: User) -> None:
    done = await execute(sys.executable, "-m", "atomic", "--version", env=user.env)
    assert done.stdout == f"atomic {atomic.__version__}\n"


@pytest.mark.parametrize("output", ["closed", "gone"])
async def test_a_closed_output_is_not_an_error(user: User, output: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    closing = (lambda: os.close(1)) if output == "closed" else None
    process = subprocess.Popen(
        [ATOMIC, "--help"], env=user.env, stdout=writer, stderr=subprocess.PIPE, preexec_fn=closing
    )
    os.close(writer)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0


def imported_after(code: str, *names: str) -> set[str]:
    """Return which of these modules a new interpreter imports for the code."""
    code += f"; import sys; print('modules', *(name for name in {names} if name in sys.modules))"
    said = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)
    return set(said.splitlines()[-1].split()[1:])


def test_no_agents_sdk_is_imported_before_that_agent_is_used() -> None:
    code = "import atomic.cli.main, atomic.cli.turn, atomic.cli.doctor, atomic.cli.models"
    assert imported_after(code, *SDKS, "atomic.providers", "atomic.providers.claude") == {"atomic.providers"}


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_what_needs_nothing_imports_nothing(flag: str) -> None:
    code = f"from atomic.cli.main import main; main([{flag!r}])"
    assert imported_after(code, "asyncio", "msgspec", "argparse", "re", "logging", "typing") == set()


async def test_help_describes_the_position_of_flags_correctly(user: User) -> None:
    """A flag after an unquoted prompt is a part of it; the help must agree."""
    help = (await user.atomic("--help")).stdout
    assert (
        "Flags go before the prompt; a prompt of one word or in quotes right after -p may be followed by flags." in help
    )
    assert "before or after" not in help
    after = await user.atomic("-p", "say", "hello", "--output", "json")
    assert after.exit_code == 2
    assert complaint(after) == (
        "--output comes after the start of the prompt, where it is only text:"
        " put it before the prompt, or put -- before a prompt with this text in it"
    )
    for words in (("-p", "say hello", "--output", "json"), ("-p", "--output", "json", "say", "hello")):
        done = await user.atomic(*words)
        assert done.stdout.startswith('{"type":')
        assert "of the prompt" not in done.stderr
    text = await user.atomic("-p", "--", "say", "hello", "--output", "json")
    assert "of the prompt" not in text.stderr


@pytest.mark.parametrize("words", [("chat", "say", "hello", "--plain"), ("--plain", "say", "hello", "--agent", "x")])
async def test_a_conversation_does_not_begin_with_a_flag_in_its_prompt(user: User, words: tuple[str, ...]) -> None:
    done = await user.atomic(*words, input="")
    assert (done.exit_code, "comes after the start of the prompt" in complaint(done)) == (2, True)
