"""`atomic config`: what holds, and where it comes from."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.user import User


async def settings(user: User) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    done = await user.atomic("config", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    data = msgspec.json.decode(done.stdout)
    return {row["key"]: row for row in data["settings"]}, data


async def test_each_setting_names_its_file_and_line(user: User) -> None:
    mine = user.sets('agent = "claude"\nmodel = "opus"\n\n[caps]\nmax_cost = 5\nmax_time = "6h"\n')
    theirs = user.project_sets('agent = "opencode"\n[caps]\nmax_cost = 2\n')
    user.env["ATOMIC_MODEL"] = "haiku"
    found, _ = await settings(user)
    assert (found["agent"]["value"], found["agent"]["path"], found["agent"]["line"]) == ("opencode", str(theirs), 1)
    assert (found["caps.max_cost"]["value"], found["caps.max_cost"]["line"]) == (2, 3)
    assert (found["caps.max_time"]["value"], found["caps.max_time"]["path"]) == (21600, str(mine))
    assert (found["model"]["value"], found["model"]["source"]) == ("haiku", "environment")
    assert found["model"]["variable"] == "ATOMIC_MODEL"
    assert found["theme"]["source"] == "default"


async def test_forbidden_project_settings_are_reported_and_ignored(user: User) -> None:
    user.sets("[caps]\nmax_cost = 1\n")
    user.project_sets('editor = "evil"\n[caps]\nmax_cost = 100\n')
    found, data = await settings(user)
    assert (found["editor"]["value"], found["caps.max_cost"]["value"]) == (None, 1)
    assert len(data["warnings"]) == 2
    shown = await user.atomic("config")
    assert shown.exit_code == 0
    assert shown.stderr.count("warning:") == 2
    assert "evil" not in shown.stdout


async def test_a_projects_workflow_settings_are_held_within_the_users(user: User) -> None:
    user.sets('[workflows.ralph]\nmax_iterations = 5\nverify = ["make test"]\n')
    file = user.project_sets(
        '[workflows.ralph]\npr = true\nmax_iterations = 0\nverify = ["true"]\ntasks = "docs/.tasks.json"\n'
    )
    found, data = await settings(user)
    assert found["workflows.ralph.max_iterations"]["value"] == 5
    assert found["workflows.ralph.verify"]["value"] == ["make test", "true"]
    assert not {"workflows.ralph.pr", "workflows.ralph.tasks"} & found.keys()
    said = data["warnings"]
    assert [one.split(" is ignored")[0] for one in said] == [
        f'{file}:{line}: "workflows.ralph.{key}"' for line, key in ((2, "pr"), (5, "tasks"), (3, "max_iterations"))
    ]


async def test_no_secret_is_printed(user: User) -> None:
    user.sets('[providers.claude.env]\nANTHROPIC_API_KEY = "sk-ant-abcdefgh12345678"\nREGION = "eu"\n')
    for flag in ((), ("--json",)):
        done = await user.atomic("config", *flag)
        assert "abcdefgh12345678" not in done.stdout + done.stderr
        assert "eu" in done.stdout


async def test_the_table_names_missing_files_too(user: User) -> None:
    user.sets('agent = "claude"\n')
    done = await user.atomic("config")
    assert done.stdout.splitlines()[0].split()[:2] == ["agent", '"claude"']
    assert f"project file: {user.project}/.atomic/config.toml (does not exist)" in done.stdout


async def test_a_broken_file_is_one_line_and_exit_code_2(user: User) -> None:
    user.sets("agent = \n")
    done = await user.atomic("config")
    assert (done.exit_code, done.stdout) == (2, "")


@pytest.mark.parametrize(
    "command", [("config",), ("doctor",), ("run", "ralph", "--dry-run", "x")], ids=lambda words: words[0]
)
async def test_a_misspelled_key_of_ralph_is_named_with_file_line_and_the_nearest(
    user: User, command: tuple[str, ...]
) -> None:
    file = user.sets('[workflows.ralph]\nverfy = ["false"]\n\nmax_iteratons = 1\nworkers = 1\n')
    done = await user.atomic(*command)
    said = done.stdout + done.stderr
    told = "has no effect on the built-in ralph: no such key"
    assert f'{file}:2: "workflows.ralph.verfy" {told} (did you mean "workflows.ralph.verify"?)' in said
    assert f'{file}:4: "workflows.ralph.max_iteratons" {told} (did you mean "workflows.ralph.max_iterations"?)' in said
    assert said.count("no such key") == 2
