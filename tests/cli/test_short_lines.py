"""The command line as people type it: short words, no ids, files by their path."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

import atomic
from atomic.base.errors import ExitCode
from tests.support.session_folders import make_session
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, User, complaint, objects, processes, told
from tests.support.user_workflows import call, end, recording, session, sessions, workflow
from tests.support.waits import HANG, eventually

ASKS = "workflow = graph(S).ask_user('q', 'Go on?').compile()\n"
FLOW = """from atomic.workflows import State, graph
import helper
description = "Greet"
default_config = {"times": 1}
class S(State):
    prompt: str = ""
def greet(state):
    print("hello", helper.NAME)
    return {}
workflow = graph(S).tool("greet", greet).ask_user("q", "Go on?").compile()
"""


def flow(user: User) -> Path:
    file = user.project / "flow.py"
    file.write_text(FLOW)
    (user.project / "helper.py").write_text("NAME = 'you'\n")
    return file


@pytest.mark.parametrize("words", [("-V",), ("version",)])
async def test_other_words_for_the_version(user: User, words: tuple[str, ...]) -> None:
    done = await user.atomic(*words)
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"atomic {atomic.__version__}\n", "")


async def test_help_is_a_word_too(user: User) -> None:
    for words, same in ((("help",), ("--help",)), (("help", "sessions", "list"), ("sessions", "list", "--help"))):
        assert (await user.atomic(*words)).stdout == (await user.atomic(*same)).stdout
    ralph = await user.atomic("help", "ralph")
    assert ralph.stdout == (await user.atomic("run", "ralph", "--help")).stdout
    assert ralph.stdout.startswith("atomic run ralph: Plan, implement")
    assert "--review-rounds N" in ralph.stdout


async def test_the_help_has_groups_five_examples_and_ralph(user: User) -> None:
    lines = (await user.atomic("--help")).stdout.splitlines()
    titles = [line for line in lines if line and not line.startswith(" ")]
    assert titles[1:6] == ["Examples", "Start", "Watch and steer", "Build workflows", "Set up"]
    examples = lines[lines.index("Examples") + 1 : lines.index("Start") - 1]
    assert len(examples) == 5
    assert any("atomic ralph" in line for line in examples)


async def test_slash_help_lists_the_flags_of_ralph(user: User) -> None:
    assert "--review-rounds N" in (await user.atomic("-p", "/help ralph")).stdout


async def test_ralph_is_a_verb(user: User) -> None:
    done = await user.atomic("ralph", "--dry-run", "--json", "-a", "replay:nowhere.jsonl", "x")
    assert (done.exit_code, [event["type"] for event in objects(done)]) == (2, ["error"])
    assert told(done).startswith("replay: nowhere.jsonl:")


async def test_run_without_a_name_lists_what_can_be_run(user: User) -> None:
    workflow(user, "mine", "description = 'My own'\n" + ASKS)
    done = await user.atomic("run")
    assert done.exit_code == 2
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["mine", "ralph"]
    assert "My own" in done.stdout


async def test_json_of_one_turn_has_a_short_flag(user: User) -> None:
    agent = recording(user, call(end("Hello.")))
    done = await user.atomic("-p", "hi", "--agent", agent, "--json")
    (line,) = objects(done)
    assert (done.exit_code, line["text"]) == (0, "Hello.")


async def test_resume_without_an_id_continues_the_last_run_of_the_folder(user: User) -> None:
    workflow(user, "asks", ASKS)
    assert (await user.atomic("run", "asks", "one")).exit_code == 5
    first = session(user)["id"]
    other = user.project.parent / "other"
    other.mkdir()
    assert (await user.atomic("run", "asks", "two", cwd=other)).exit_code == 5
    done = await user.atomic("resume")
    assert (done.exit_code, done.stderr.splitlines()[0]) == (5, f"Resuming {first}")
    shown = await user.atomic("status")
    assert (shown.stdout.count("asks"), "one" in shown.stdout) == (1, True)
    assert (await user.atomic("ps")).stdout.count("asks") == 2
    assert "Go on?" in (await user.atomic("logs")).stdout
    assert (await user.atomic("status", first)).stdout == (await user.atomic("sessions", "show", first)).stdout


async def test_resume_without_an_id_leaves_a_run_whose_end_is_final(user: User) -> None:
    flow(user)
    assert (await user.atomic("run", "./flow.py", "hi")).exit_code == 5
    [waiting] = sessions(user)
    ends = "from atomic.workflows import Failed, Flow, workflow\n@workflow\nasync def ends(flow: Flow, prompt: str):\n"
    (user.project / "ends.py").write_text(f"{ends}    return Failed('no')\n")
    assert (await user.atomic("run", "./ends.py", "hi")).exit_code == 1
    done = await user.atomic("resume")
    assert (done.exit_code, f"Resuming {waiting.name}" in done.stderr) == (5, True), done.stderr


async def test_resume_without_an_id_takes_the_flags_of_the_run(user: User) -> None:
    workflow(user, "asks", "default_config = {'rounds': 1}\n" + ASKS)
    assert (await user.atomic("run", "asks", "one")).exit_code == 5
    assert (await user.atomic("resume", "--rounds", "3")).exit_code == 5
    assert session(user)["config"] == {"rounds": 3}


async def test_a_finished_run_is_not_the_one_to_resume(user: User) -> None:
    workflow(user, "asks", ASKS)
    assert (await user.atomic("run", "asks", "one")).exit_code == 5
    assert (await user.atomic("answer", session(user)["id"], "yes")).exit_code == 0
    assert complaint(await user.atomic("resume")).startswith("No run of this folder can be continued")


async def test_continue_opens_the_last_conversation_of_the_folder(user: User) -> None:
    done = await user.atomic("--plain", "-c", input="")
    assert (done.exit_code, complaint(done)) == (
        2,
        "This folder has no conversation to continue: atomic begins one",
    )
    agent = recording(user, call(end("Hello.")), call(end("Again.")))
    first = await user.atomic("--plain", "-a", agent, input="hi\n")
    assert first.exit_code == 0, first.stderr
    id = session(user)["id"]
    again = await user.atomic("--plain", "-a", agent, "-c", input="more\n")
    assert again.exit_code == 0, again.stderr
    assert [folder.name for folder in sessions(user)] == [id]


async def test_empty_lists_say_what_to_do(user: User) -> None:
    for words in (("sessions",), ("ps",), ("status",)):
        assert 'atomic ralph "GOAL"' in (await user.atomic(*words)).stdout
    assert "~/.atomic/mcp.json" in (await user.atomic("mcp")).stdout
    assert ".claude/commands/NAME.md" in (await user.atomic("entities", "list", "--kind", "command")).stdout


async def test_a_file_runs_by_its_path_without_trust(user: User) -> None:
    flow(user)
    done = await user.atomic("run", "./flow.py", "--times", "2", "hi")
    assert (done.exit_code, "hello you" in done.stderr.splitlines()) == (5, True)
    assert (session(user)["workflow"], session(user)["config"]) == ("flow", {"times": 2})
    assert "atomic run flow.py: Greet" in (await user.atomic("run", "flow.py", "--help")).stdout


async def test_a_file_that_changed_runs_again_only_if_it_is_named(user: User) -> None:
    """Its path was typed for the content that it had; an agent may have changed it."""
    file = flow(user)
    assert (await user.atomic("run", "flow.py", "hi")).exit_code == 5
    id = session(user)["id"]
    assert (await user.atomic("resume", id)).exit_code == 5
    (user.project / "helper.py").write_text("NAME = 'evil'\nopen('canary', 'w')\n")
    done = await user.atomic("resume", id)
    assert (done.exit_code, f"atomic run {file} --resume {id}" in complaint(done)) == (4, True)
    await user.atomic("sessions", "show", id)
    assert not (user.project / "canary").exists()
    assert (await user.atomic("run", str(file), "--resume", id)).exit_code == 5


async def test_a_file_by_its_path_trusts_nothing_else(user: User) -> None:
    file = flow(user)
    folder = user.project / ".atomic" / "workflows"
    folder.mkdir(parents=True)
    (folder / "evil.py").write_text("open('canary', 'w')\n")
    file.write_text(FLOW.replace('tool("greet", greet)', "workflow('evil')"))
    done = await user.atomic("run", "flow.py", "hi")
    assert done.exit_code in (2, 4)
    assert not (user.project / "canary").exists()


def test_a_reader_that_leaves_and_no_colour_and_no_terminal(user: User) -> None:
    for number in range(40):
        make_session(user.home, prompt=f"number {number}")
    for line in ("--help", "sessions list", "help run", "ps --json", "completion bash"):
        script = f'"$0" {line} | head -1; echo "${{PIPESTATUS[0]}}"'
        done = subprocess.run(
            ["bash", "-c", script, ATOMIC], cwd=user.project, env={**user.env, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG, check=False,
        )  # fmt: skip
        assert (done.stdout.splitlines()[-1], done.stderr) == ("0", ""), line
        assert "\x1b" not in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_completion_installs_itself_once_and_shows_it_first(user: User, shell: str) -> None:
    before = sorted(user.home.rglob("*"))
    dry = await user.atomic("completion", "--install", "--dry-run", shell)
    assert (dry.exit_code, sorted(user.home.rglob("*"))) == (0, before)
    assert "nothing was written" in dry.stderr
    start_file = user.home / {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".other"}[shell]
    start_file.write_text("mine=1")
    start_file.chmod(0o640)
    done = await user.atomic("completion", "--install", shell)
    assert (done.exit_code, done.stdout.startswith("--- ")) == (0, True)
    files = {path: path.read_bytes() for path in user.home.rglob("*") if path.is_file()}
    assert any(b"atomic complete" in data for data in files.values())
    assert start_file.read_text().startswith("mine=1")
    assert start_file.stat().st_mode & 0o777 == 0o640
    again = await user.atomic("completion", "--install", shell)
    assert (again.exit_code, again.stdout) == (0, "")
    assert f"the completion for {shell} is installed already" in told(again)
    assert {path: path.read_bytes() for path in user.home.rglob("*") if path.is_file()} == files


async def test_completion_finds_out_the_shell_and_keeps_other_files(user: User) -> None:
    user.env["SHELL"] = "/usr/bin/fish"
    file = user.home / ".config" / "fish" / "completions" / "atomic.fish"
    file.parent.mkdir(parents=True)
    file.write_text("# my own\n")
    done = await user.atomic("completion", "--install")
    assert (done.exit_code, "exists and is not Atomic's" in complaint(done)) == (1, True)
    assert file.read_text() == "# my own\n"


async def test_completion_writes_nothing_if_the_start_file_cannot_be_read(user: User) -> None:
    (user.home / ".zshrc").mkdir()
    before = sorted(user.home.rglob("*"))
    done = await user.atomic("completion", "--install", "zsh")
    assert (done.exit_code, "this is not a regular file" in complaint(done)) == (1, True), done
    assert sorted(user.home.rglob("*")) == before


REVIEWED = """from atomic.workflows import *
class S(State):
    prompt: str = ""
    text: str = ""
def keep(answer, state):
    return {"text": answer}
workflow = graph(S).agent("draft", lambda state: "Write it", output_mapper=keep).compile()
def at_end(end):
    return "RESULT one " + end.state.text
"""


@pytest.mark.ci
async def test_dev_checks_and_runs_a_workflow_at_each_save(user: User) -> None:
    file = user.project / ".atomic" / "workflows" / "tale.py"
    file.parent.mkdir(parents=True)
    file.write_text(REVIEWED)
    lines = ({"atomic_recording": 1}, call(end("A draft."), commits=["broken"], patch="broken"))
    file.with_suffix(".jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)) + b"\n")
    refused = await user.atomic("workflows", "dev", "tale", "hi")
    assert (refused.exit_code, "it would run workflow .atomic/workflows/tale.py" in complaint(refused)) == (4, True)
    async with in_terminal([ATOMIC, "workflows", "dev", "tale", "hi"], env=user.env, cwd=user.project) as terminal:
        await terminal.shows("[y/N] ")
        terminal.type("y\n")
        await terminal.shows("waiting for a change of tale.jsonl, tale.py")
        assert "RESULT one A draft." in terminal.screen
        terminal.screen = ""
        file.write_text(REVIEWED.replace("RESULT one", "RESULT two"))
        await terminal.shows("RESULT two A draft.")
        await terminal.shows("waiting for a change")
        terminal.screen = ""
        file.write_text("def broken(\n")
        await terminal.shows("tale.py:1: this is not Python: '(' was never closed")
        terminal.type("\x03")
        assert await terminal.exit_code() == ExitCode.INTERRUPTED
    assert sessions(user) == []
    await eventually(lambda: not processes(user.home), limit=HANG)
