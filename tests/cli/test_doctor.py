"""`atomic doctor` and `atomic models`, also for a user without agents."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from atomic.processes import running
from atomic.testing import ModelServer, claude_env
from tests.cli.test_branch_verbs import ID, BranchRun
from tests.support.repositories import write
from tests.support.user import ATOMIC, User, complaint, objects, processes
from tests.support.user_workflows import sessions, workflow
from tests.support.waits import eventually

AGENTS = ("claude", "opencode", "copilot")
REMEDIES = {
    "claude": "npm install -g @anthropic-ai/claude-code",
    "opencode": "npm install -g opencode-ai",
    "copilot": "npm install -g @github/copilot",
}


CLAUDE = "import sys\nprint('2.1.325' if '--version' in sys.argv else '{\"loggedIn\": true}')\n"
LOGGED_OUT = CLAUDE.replace("true", "false")


async def findings(user: User) -> tuple[int, dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Return the exit code, the providers by name, and the checks."""
    done = await user.atomic("doctor", "--json")
    assert done.stderr == ""
    (found,) = cast("list[dict[str, list[dict[str, Any]]]]", objects(done))
    return done.exit_code, {row["name"]: row for row in found["providers"]}, found["checks"]


async def test_without_agents_doctor_explains_how_to_get_one(user: User) -> None:
    user.has_no_agents()
    code, providers, checks = await findings(user)
    assert code == 1
    assert [name for name, row in providers.items() if row["ok"]] == ["replay"]
    for name in AGENTS:
        assert REMEDIES[name] in providers[name]["remedy"]
    assert [check["name"] for check in checks if not check["ok"]] == ["git"]  # it is not on this PATH either


async def test_doctor_names_what_keeps_a_run_out_of_workspaces(user: User) -> None:
    run = BranchRun(user)
    run.git("update-index", "--add", "--cacheinfo", f"160000,{run.start},sub")
    run.git("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "-qm", "A submodule")
    write(run.root, {"sub/.git/HEAD": ""})
    shown = (await user.atomic("doctor")).stdout
    assert "none: work in the submodule sub could not be kept, so runs work in the folder itself" in shown


async def test_doctor_says_how_workers_are_kept_apart_and_what_runs_have_left(user: User) -> None:
    async def row() -> dict[str, Any]:
        done = await user.atomic("doctor", "--json")
        (found,) = cast("list[dict[str, list[dict[str, Any]]]]", objects(done))
        return next(check for check in found["checks"] if check["name"] == "workspaces")

    none = await row()
    assert (none["ok"], none["remedy"]) == (True, "")
    assert none["detail"] == (
        f"none: {user.project} is in no git repository, so runs work in the folder itself; no run has left any"
    )
    run = BranchRun(user).save()
    clean = await row()
    assert clean["detail"].startswith(("overlay: each worker has a view of its own", "clone: each worker has a copy"))
    assert clean["detail"].endswith("; no run has left any")
    assert not (user.home / ".atomic" / "workspaces").exists()
    run.park("4/1", {"x.txt": "one\n"})
    run.park("4/2", {"x.txt": "two\n"})
    write(user.home / ".atomic" / "workspaces" / ID, {"base/file.txt": "x" * 3_000_000})
    os.link(run.root / "a.txt", user.home / ".atomic" / "workspaces" / ID / "linked")
    left = await row()
    assert left["detail"].endswith("; left by runs: 1 folder and 2 parked attempts, 3.0 MB")
    assert left["remedy"] == "atomic sessions prune --older-than 30d deletes what old runs have left"


async def test_a_prompt_without_agents_gets_the_same_advice(user: User) -> None:
    user.has_no_agents()
    for words in (["-p", "hello"], ["models"]):
        done = await user.atomic(*words)
        assert done.exit_code == 1
        assert complaint(done) == (
            "No agent can be used here: install one, for example Claude Code: npm install -g @anthropic-ai/claude-code"
            " (atomic doctor says what is missing for each; atomic demo shows a run without one)"
        )


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_missing_agent_is_one_line_with_the_command_that_installs_it(user: User, agent: str) -> None:
    user.has_no_agents()
    done = await user.atomic("-p", "hello", "--agent", agent)
    assert done.exit_code == 1
    assert complaint(done).startswith(f"{agent}: ")
    assert complaint(done).endswith(f"({REMEDIES[agent]})")


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_program_that_a_variable_names_must_be_there(user: User, agent: str) -> None:
    variable = f"ATOMIC_{agent.upper()}_PATH"
    user.env[variable] = "nowhere/agent"
    done = await user.atomic("-p", "hello", "--agent", agent)
    message = f"{agent}: {variable} names 'nowhere/agent', which is not a program (correct or remove it)"
    assert (done.exit_code, complaint(done)) == (1, message)


async def test_no_other_agent_takes_the_place_of_one_that_was_named_wrongly(user: User) -> None:
    user.has_no_agents()
    user.has("copilot", "print('1.0.102')")
    user.env |= {"COPILOT_GITHUB_TOKEN": "x", "ATOMIC_CLAUDE_PATH": "/nowhere/claude"}
    done = await user.atomic("-p", "hello")
    message = "claude: ATOMIC_CLAUDE_PATH names '/nowhere/claude', which is not a program (correct or remove it)"
    assert (done.exit_code, complaint(done)) == (1, message)


async def test_one_line_for_each_thing(user: User) -> None:
    user.has_only_claude("print('2.1.325 (Claude Code)')")
    done = await user.atomic("doctor")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert (done.exit_code, done.stderr) == (0, "")
    names = ["claude", "opencode", "copilot", "acp", "replay", "git", "python", "atomic", "config", "config", "home"]
    assert [words[1] for words in lines] == [*names, "keys", "sandbox", "workspaces", "integrity"]
    assert lines[0][:4] == ["ok", "claude", "2.1.325", f"({user.bin}/claude):"]
    assert " ".join(lines[0][4:]) == "the account of ANTHROPIC_API_KEY pays"
    assert lines[2][0] == "--"
    assert all(words[0] == "ok" for words in lines[4:])
    version, path = lines[6][2:]
    assert version == sys.version.split()[0]
    # The command may start the same Python by another of its names, such as python3.
    assert os.path.dirname(path.strip("()")) == os.path.dirname(sys.executable)


async def test_a_program_that_is_too_old_is_named_with_the_remedy(user: User) -> None:
    user.has_only_claude("print('1.0.3 (Claude Code)')")
    _, providers, _ = await findings(user)
    claude = providers["claude"]
    assert (claude["ok"], claude["version"], claude["program"]) == (False, "1.0.3", f"{user.bin}/claude")
    assert "claude update" in claude["remedy"]
    done = await user.atomic("-p", "hello", "-a", "claude")
    assert done.exit_code == 1
    assert "it is older than 2.1" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("agent", ["copilot", "planner=copilot"])
async def test_an_agent_without_a_login_is_refused_before_anything_is_created(user: User, agent: str) -> None:
    user.has_no_agents()
    user.has("copilot", "print('1.0.102')")
    if "=" in agent:
        user.has("claude", CLAUDE)
    done = await user.atomic("run", "ralph", "--agent", agent, "--red-checks", "ignore", "add x")
    assert (done.exit_code, sessions(user)) == (1, [])
    assert complaint(done).startswith("copilot: it has no login: run 'copilot login'")
    user.env["ATOMIC_AGENT"] = "copilot"
    done = await user.atomic("run", "ralph", "add x")
    assert (done.exit_code, sessions(user)) == (1, [])
    assert complaint(done).startswith("copilot: it has no login")


async def test_the_remedy_for_a_login_names_a_command_that_exists(user: User) -> None:
    user.has_no_agents()
    path = user.has("claude", LOGGED_OUT)
    code, providers, _ = await findings(user)
    assert (code, providers["claude"]["remedy"]) == (1, "run `claude` once and log in, or set ANTHROPIC_API_KEY")
    user.env["ATOMIC_CLAUDE_PATH"] = str(path.rename(path.with_name("cc")))
    _, providers, _ = await findings(user)
    assert providers["claude"]["remedy"].startswith(f"run `{user.bin}/cc` once and log in")


@pytest.mark.parametrize(
    ("agent", "remedy"),
    [
        ("opencode", "Atomic needs OpenCode 1.18 or newer: npm install -g opencode-ai"),
        ("copilot", "it is older than 1.0.102: npm install -g @github/copilot"),
    ],
)
async def test_a_server_that_is_too_old_is_reported_with_a_remedy(user: User, agent: str, remedy: str) -> None:
    user.has(agent, "import sys\nprint('0.5.5') if '--version' in sys.argv else sys.exit('error: unknown option')")
    done = await user.atomic("-p", "hello", "-a", agent)
    assert done.exit_code == 1
    assert complaint(done).endswith(f"({remedy})")


@pytest.mark.ci
async def test_a_program_that_hangs_is_reported_and_not_waited_for(user: User) -> None:
    user.has_only_claude("import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(1000)")
    code, providers, checks = await findings(user)
    assert providers["claude"]["remedy"] == "it gave no answer within 10 s: start it once by hand and see why"
    assert (code, checks[0]["name"]) == (1, "git")


async def test_programs_are_not_started_in_an_untrusted_folder(user: User, tmp_path: Path) -> None:
    tell_folder = f"import os, sys\nopen({str(tmp_path)!r} + '/asked', 'a').write(os.getcwd() + '\\n')\n"
    user.has_only_claude(f"{tell_folder}print('2.1.325 (Claude Code)')")
    user.has("git", f"{tell_folder}print('git version 2.39.5')")
    for words in (["doctor"], ["models"]):
        await user.atomic(*words)
    folders = (tmp_path / "asked").read_text().splitlines()
    assert len(folders) >= 3
    assert str(user.project) not in folders


@pytest.mark.ci
async def test_ctrl_c_ends_it(user: User) -> None:
    user.has_only_claude("import time; time.sleep(1000)")
    async with running(ATOMIC, "doctor", cwd=user.project, env=user.env, stdin=False) as program:
        async with asyncio.timeout(60):
            await eventually(lambda: any(f"{user.bin}/claude" in command for command in processes(user.home).values()))
            os.kill(program.pid, signal.SIGINT)
            assert (await program.stdout.read(), await program.wait()) == (b"", 130)
    assert program.stderr_tail == ""
    assert processes(user.home) == {}


@pytest.mark.ci
async def test_a_relative_program_is_meant_from_where_one_is(user: User) -> None:
    user.has_only_claude("print('2.1.325 (Claude Code)')")
    (user.bin / "claude").rename(user.project / "mine")
    user.env["ATOMIC_CLAUDE_PATH"] = "./mine"
    _, providers, _ = await findings(user)
    assert (providers["claude"]["ok"], providers["claude"]["program"]) == (True, f"{user.project}/mine")


@pytest.mark.ci
async def test_problems_of_the_configuration_have_a_line_each(user: User) -> None:
    user.has_no_agents()
    own = user.sets('agnet = "claude"\n\nmodle = "x"\n')
    theirs = user.project_sets('editor = "evil"\n')
    _, _, checks = await findings(user)
    problems = [check["detail"] for check in checks if not check["ok"] and check["name"] == "config"]
    assert problems == [
        f'{own}:1: "agnet" is ignored: there is no such key (did you mean "agent"?)',
        f'{own}:3: "modle" is ignored: there is no such key (did you mean "model"?)',
        f'{theirs}:1: "editor" is ignored: a project may not set it (your own configuration may)',
    ]


@pytest.mark.ci
async def test_a_configuration_that_cannot_be_used_does_not_hide_the_agents(user: User) -> None:
    file = user.sets("\nagent = 3\n")
    user.has_only_claude("print('2.1.325 (Claude Code)')")
    code, providers, checks = await findings(user)
    reason = f'{file}:2: "agent" must be the name of an agent, such as "claude", not 3'
    assert (code, providers["claude"]["ok"]) == (0, True)
    assert [check["detail"] for check in checks if not check["ok"]] == [reason]
    done = await user.atomic("-p", "hello")
    assert (done.exit_code, complaint(done)) == (2, reason)


@pytest.mark.ci
async def test_a_home_that_cannot_be_a_folder_is_named(user: User) -> None:
    user.has_no_agents()
    (user.home / "file").write_text("")
    user.env["ATOMIC_HOME"] = str(user.home / "file" / "inside")
    done = await user.atomic("doctor")
    told = f"atomic: {user.home}/file/inside cannot be a folder: set ATOMIC_HOME to another one\n"
    assert (done.exit_code, done.stderr) == (2, told)


@pytest.mark.ci
async def test_keys_are_named_and_never_shown(user: User) -> None:
    user.has_no_agents()
    user.env |= {"ANTHROPIC_API_KEY": "sk-ant-api-123", "OTHER_TOKEN": "hidden-from-agents", "MY_TOKEN": "passed"}
    file = user.sets('[env]\npass = ["MY_TOKEN"]\n')
    _, _, checks = await findings(user)
    (keys,) = [check for check in checks if check["name"] == "keys"]
    assert (keys["ok"], keys["detail"]) == (True, "ANTHROPIC_API_KEY, MY_TOKEN")
    file.write_text('[providers.claude]\nenv = {ANTHROPIC_API_KEY = "sk-ant-api-456"}\n')
    file.chmod(0o644)
    done = await user.atomic("doctor")
    said = " ".join(done.stdout.split())
    assert f"keys {file} contains keys, and other users can read it (chmod 600 {file})" in said
    assert "sk-ant" not in done.stdout


@pytest.mark.ci
async def test_unreadable_sessions_are_named(user: User) -> None:
    user.has_no_agents()
    workflow(user, "hello", "workflow = graph(S).tool('a', lambda: 1).compile()\n")
    for _ in range(2):
        assert (await user.atomic("run", "hello")).exit_code == 0
    _, _, checks = await findings(user)
    assert (checks[-1]["name"], checks[-1]["detail"]) == ("integrity", "2 sessions, all readable")
    first, second = sessions(user)
    (first / "session.json").write_text("{")
    (second / "journal.db").write_bytes(b"no journal at all")
    _, _, checks = await findings(user)
    assert checks[-1]["ok"] is False
    assert checks[-1]["detail"].startswith(f"{first}/session.json cannot be read")
    assert checks[-1]["detail"].endswith("(and 1 more)")


@pytest.mark.ci
async def test_models_are_listed_one_a_line_or_as_json(user: User) -> None:
    async with ModelServer() as server:
        user.env |= claude_env(server, user.home) | {"PATH": user.env["PATH"]}
        done = await user.atomic("models", "-a", "claude")
        assert (done.exit_code, done.stderr) == (0, "")
        as_json = (await user.atomic("models", "-a", "claude", "--json")).stdout
    models = msgspec.json.decode(as_json, type=list[dict[str, Any]])
    assert {"id", "name", "context"} == set(models[0])
    assert [line.split()[0] for line in done.stdout.splitlines()] == [model["id"] for model in models]
    assert "opus" in [model["id"] for model in models]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("cluade", 'Unknown agent: "cluade" (did you mean "claude"?)'),
        ("claude:x", 'Unknown agent: "claude:x" (did you mean "claude"?)'),
        ("acp", '"acp" is incomplete (name the agent: '),
        ("replay", '"replay" is incomplete (name the recording: replay:FILE)'),
    ],
)
async def test_an_agent_that_there_is_not_is_exit_code_2(user: User, agent: str, message: str) -> None:
    for words in (["-p", "hello"], ["models"]):
        done = await user.atomic(*words, "--agent", agent)
        assert done.exit_code == 2
        assert complaint(done).startswith(message)
    user.env["ATOMIC_AGENT"] = agent
    done = await user.atomic("-p", "hello")
    assert done.exit_code == 2
    assert complaint(done).startswith(message)
    assert complaint(done).endswith(", set by ATOMIC_AGENT or the configuration")


@pytest.mark.ci
async def test_untrusted_configuration_is_ignored_with_one_warning(user: User) -> None:
    file = user.project_sets('[providers.claude]\npath = "./evil"\n')
    user.has_no_agents()
    done = await user.atomic("-p", "hello", "-a", "claude")
    assert done.stderr.splitlines()[0] == (
        f'atomic: warning: {file}:2: "providers.claude.path" is ignored: a project may not set it'
        " (your own configuration may)"
    )
    assert len(done.stderr.splitlines()) == 2


async def test_other_known_agents_have_a_row_if_they_are_on_path(user: User) -> None:
    user.has_no_agents()
    user.has("codex-acp", "print('@agentclientprotocol/codex-acp 2.6.0')")
    user.has("gemini", "print('0.61.0')")
    user.env["OPENAI_API_KEY"] = "x"
    code, providers, _ = await findings(user)
    assert code == 0
    assert list(providers) == ["claude", "opencode", "copilot", "codex", "gemini", "replay"]
    codex = providers["codex"]
    assert (codex["ok"], codex["version"], codex["program"]) == (True, "2.6.0", f"{user.bin}/codex-acp")
    assert (codex["login"], codex["pays"]) == ("OPENAI_API_KEY", "the account of OPENAI_API_KEY pays")
    gemini = providers["gemini"]
    assert (gemini["ok"], gemini["version"], gemini["login"]) == (False, "0.61.0", "")
    assert gemini["remedy"] == "no login was found; run: atomic login gemini, or set GEMINI_API_KEY"
    assert gemini["install"] == "npm install -g @google/gemini-cli"
    login = user.home / ".gemini" / "oauth_creds.json"
    login.parent.mkdir()
    login.write_text("{}")
    lines = (await user.atomic("doctor")).stdout.splitlines()
    assert lines[3] == f"ok  codex       2.6.0 ({user.bin}/codex-acp): the account of OPENAI_API_KEY pays"
    paid = "logged in, your Google account pays, within its free quota or plan"
    assert lines[4] == f"ok  gemini      0.61.0 ({user.bin}/gemini): {paid}"


async def test_an_agent_without_its_adapter_says_which_one_it_needs(user: User) -> None:
    user.has_no_agents()
    program = user.has("codex", "raise SystemExit('doctor does not start it')")
    _, providers, _ = await findings(user)
    remedy = "codex: {} needs the adapter 'codex-acp', which is not installed ({})"
    install = "npm install -g @agentclientprotocol/codex-acp"
    assert providers["codex"]["remedy"] == remedy.format(program, install).removeprefix("codex: ")
    done = await user.atomic("-p", "hello", "--agent", "codex")
    assert (done.exit_code, complaint(done)) == (1, remedy.format(program, install))
    # The automatic choice says the same, as it would of another agent that is not ready.
    done = await user.atomic("-p", "hello")
    assert f"No agent can be used here: {remedy.format(program, install)}" in complaint(done)


async def test_the_version_of_an_agent_of_npm_is_read_without_starting_it(user: User) -> None:
    user.has_no_agents()
    package = user.home / "lib" / "node_modules" / "@google" / "gemini-cli"
    write(package, {"package.json": '{"version": "0.61.0"}', "bundle/gemini.js": "#!/bin/false\n"})
    (package / "bundle" / "gemini.js").chmod(0o755)
    (user.bin / "gemini").symlink_to(package / "bundle" / "gemini.js")
    user.env["GEMINI_API_KEY"] = "x"
    _, providers, _ = await findings(user)
    assert (providers["gemini"]["ok"], providers["gemini"]["version"]) == (True, "0.61.0")


async def test_an_agent_is_named_without_a_prefix(user: User) -> None:
    user.has_no_agents()
    for name, message in {
        "codex": "codex: the program 'codex-acp' is not installed (npm install -g @agentclientprotocol/codex-acp)",
        "acp:codex": "codex: the program 'codex-acp' is not installed (npm install -g @agentclientprotocol/codex-acp)",
        "gemni": 'Unknown agent: "gemni" (did you mean "gemini"?)',
    }.items():
        assert complaint(await user.atomic("-p", "hello", "--agent", name)) == message
