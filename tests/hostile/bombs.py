"""Repositories that take all memory, all time, or wait for ever. Each is a few kilobytes of a clone."""

from __future__ import annotations

import os

from tests.hostile.repositories import Stranger, project


def _key(parts: int) -> str:
    return ".".join(["a"] * parts) + " = 1\n"


@project
def a_key_of_many_parts(its: Stranger) -> None:
    its.file(".atomic/config.toml", f"theme = 'dark'\n{_key(16_000)}")


@project
def a_key_of_very_many_parts(its: Stranger) -> None:
    its.file(".atomic/config.toml", _key(250_000))
    its.file("pyproject.toml", f"[project]\nname = 'x'\n{_key(250_000)}")


@project
def codex_settings_with_a_key_of_many_parts(its: Stranger) -> None:
    its.file(".codex/config.toml", _key(40_000))


@project
def settings_of_very_many_values(its: Stranger) -> None:
    values = f'{{"hooks": [{",".join("1" * 500_000)}]}}'
    for name in (".claude/settings.json", ".claude/settings.local.json", ".mcp.json"):
        its.file(name, values)


@project
def opencode_settings_without_an_end(its: Stranger) -> None:
    for name in ("opencode.json", "opencode.jsonc", ".opencode/opencode.json"):
        (its.project / name).parent.mkdir(exist_ok=True)
        (its.project / name).symlink_to("/dev/zero")


@project
def pipes_in_place_of_settings(its: Stranger) -> None:
    names = ("opencode.json", ".atomic/config.toml", ".claude/agents/x.md", ".codex/config.toml", ".mcp.json")
    for name in (*names, ".github/agents/x.agent.md", "pyproject.toml", "Makefile", "package.json"):
        (its.project / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(its.project / name)


@project
def a_workflow_that_takes_minutes_to_parse(its: Stranger) -> None:
    text = f"a = 1\nname = f'{'{a}' * 330_000}'\n"
    its.flow("bomb", text)
    its.file(".atomic/tools/bomb.py", text)


@project
def a_git_folder_that_is_huge(its: Stranger) -> None:
    its.git("")
    with open(its.project / ".git" / "HEAD", "wb") as head:
        head.truncate(9 * 1024**3)
    its.file("sub/.git", "")
    with open(its.project / "sub" / ".git", "wb") as file:
        file.truncate(9 * 1024**3)
    its.below = "sub"


@project
def a_workflow_in_a_hidden_encoding(its: Stranger) -> None:
    hidden = its.python.strip().encode("utf-7").decode()
    its.flow("ralph", f"# coding: utf-7\n# see docs +AAo-{hidden}\n")
    (its.project / ".atomic" / "workflows" / "sjis.py").write_bytes(
        b"# -*- coding: shift_jis -*-\ndescription = '\x95\\'\n" + its.python.encode() + b"'\n"
    )
