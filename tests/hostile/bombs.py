"""Small repositories that would use all memory, take minutes, or block without end."""

from __future__ import annotations

import os

from tests.hostile.repositories import HostileProject, project


def _key(parts: int) -> str:
    return ".".join(["a"] * parts) + " = 1\n"


@project
def a_key_of_many_parts(repo: HostileProject) -> None:
    repo.file(".atomic/config.toml", f"theme = 'dark'\n{_key(16_000)}")


@project
def a_key_of_very_many_parts(repo: HostileProject) -> None:
    repo.file(".atomic/config.toml", _key(250_000))
    repo.file("pyproject.toml", f"[project]\nname = 'x'\n{_key(250_000)}")


@project
def codex_settings_with_a_key_of_many_parts(repo: HostileProject) -> None:
    repo.file(".codex/config.toml", _key(40_000))


@project
def settings_of_very_many_values(repo: HostileProject) -> None:
    values = f'{{"hooks": [{",".join("1" * 500_000)}]}}'
    for name in (".claude/settings.json", ".claude/settings.local.json", ".mcp.json"):
        repo.file(name, values)


@project
def opencode_settings_without_an_end(repo: HostileProject) -> None:
    for name in ("opencode.json", "opencode.jsonc", ".opencode/opencode.json"):
        (repo.project / name).parent.mkdir(exist_ok=True)
        (repo.project / name).symlink_to("/dev/zero")


@project
def pipes_in_place_of_settings(repo: HostileProject) -> None:
    names = ("opencode.json", ".atomic/config.toml", ".claude/agents/x.md", ".codex/config.toml", ".mcp.json")
    for name in (*names, ".github/agents/x.agent.md", "pyproject.toml", "Makefile", "package.json"):
        (repo.project / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(repo.project / name)


@project
def a_workflow_that_takes_minutes_to_parse(repo: HostileProject) -> None:
    text = f"a = 1\nname = f'{'{a}' * 330_000}'\n"
    repo.flow("bomb", text)
    repo.file(".atomic/tools/bomb.py", text)


@project
def a_git_folder_that_is_huge(repo: HostileProject) -> None:
    repo.git("")
    with open(repo.project / ".git" / "HEAD", "wb") as head:
        head.truncate(9 * 1024**3)
    repo.file("sub/.git", "")
    with open(repo.project / "sub" / ".git", "wb") as file:
        file.truncate(9 * 1024**3)
    repo.below = "sub"


@project
def a_workflow_in_a_hidden_encoding(repo: HostileProject) -> None:
    hidden = repo.python.strip().encode("utf-7").decode()
    repo.flow("ralph", f"# coding: utf-7\n# see docs +AAo-{hidden}\n")
    (repo.project / ".atomic" / "workflows" / "sjis.py").write_bytes(
        b"# -*- coding: shift_jis -*-\ndescription = '\x95\\'\n" + repo.python.encode() + b"'\n"
    )
