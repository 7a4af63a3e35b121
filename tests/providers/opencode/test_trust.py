"""Test that an untrusted project runs none of its code."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from atomic.providers import SessionOptions, UntrustedProjectError
from atomic.providers.opencode.project_files import project_code
from atomic.testing.model_server import Call
from tests.providers.opencode.sandbox import provider, sandbox
from tests.providers.turns import end
from tests.support.waits import eventually

PLUGIN = ".opencode/plugin/x.js"


def repository(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    subprocess.run(["git", "init", "-q", folder], check=True)
    for name, text in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (PLUGIN, "x"),
        (".opencode/plugins/y.ts", "x"),
        ("opencode.json", '{"plugin": ["./x.js"]}'),
        ("opencode.jsonc", '{"plugins": ["some-package"], // only that\n}'),
        (".opencode/opencode.json", '{"plugin": ["../x.js"]}'),
        ("opencode.json", '{"references": {"x": "some/repository"}}'),
        ("opencode.json", '{"\\u0070lugin": ["./x.js"]}'),
        ("opencode.json", '{ // hidden \r "plugin": ["./x.js"]}'),
        ("opencode.json", '{"plugin": ["./x.js"], "plugin": []}'),
        ("opencode.jsonc", "{ not JSON"),
    ],
)
@pytest.mark.parametrize("below", [".", "a/b"])
async def test_a_project_with_code_that_opencode_would_run_is_refused(
    tmp_path: Path, name: str, text: str, below: str
) -> None:
    folder = repository(tmp_path / "repo", {name: text}) / below
    folder.mkdir(parents=True, exist_ok=True)
    with pytest.raises(UntrustedProjectError) as found:
        async with provider(Path("/bin/false")).open(SessionOptions(cwd=folder)):
            pass
    assert found.value.items == (str(tmp_path / "repo" / name),)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".opencode/plugin/readme.md", "x"),
        (".opencode/agent/x.md", "x"),
        (".opencode/tool/x.ts", "x"),
        ("opencode.json", '{"mcp": {"x": {"type": "local", "command": ["x"]}}, "plugin": []}'),
        ("opencode.json", " "),
        ("plugin/x.js", "x"),
    ],
)
def test_files_that_opencode_does_not_run_are_accepted(tmp_path: Path, name: str, text: str) -> None:
    assert not list(project_code(repository(tmp_path / "repo", {name: text})))


def test_folders_outside_the_repository_are_not_searched(tmp_path: Path) -> None:
    outer = repository(tmp_path / "outer", {PLUGIN: "x", "file": "x"})
    inner = repository(outer / "inner" / "deep").parent
    assert not list(project_code(inner / "deep"))
    assert list(project_code(inner)) == [outer / PLUGIN]


def test_without_a_repository_all_parent_folders_are_searched(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    (tmp_path / "opencode.json").write_text('{"plugin": ["x"]}')
    assert list(project_code(folder)) == [tmp_path / "opencode.json"]


def test_the_users_own_plugins_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".opencode" / "plugin").mkdir(parents=True)
    (tmp_path / ".opencode" / "plugin" / "x.js").write_text("x")
    (tmp_path / "work").mkdir()
    assert not list(project_code(tmp_path / "work"))


def canaries(ran: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return files that leave a trace when run: avoidable ones, and ones that OpenCode always runs."""

    def script(name: str) -> str:
        write = f"fs.writeFileSync({json.dumps(str(ran / name))}, 'x')"
        return f"import fs from 'fs'; {write}; export default async () => ({{}})"

    def command(name: str) -> list[str]:
        return ["touch", str(ran / name)]

    def server(name: str) -> dict[str, Any]:
        return {"type": "local", "command": command(name), "timeout": 500}

    def program(name: str) -> str:
        return f"#!/bin/sh\ntouch {ran / name}\n"

    config: dict[str, Any] = {
        "mcp": {"x": server("mcp")},
        "formatter": {"x": {"command": command("formatter"), "extensions": [".ts"]}},
        "lsp": {"x": {"command": command("lsp"), "extensions": [".ts"]}},
    }
    hidden = {"mcp": {"y": server("hidden-mcp")}}
    package = {"name": "x", "scripts": {"postinstall": f"touch {ran / 'postinstall'}"}}
    avoidable = {
        "opencode.json": json.dumps(config),
        ".opencode/opencode.jsonc": json.dumps(hidden),
        ".opencode/tool/x.ts": script("tool"),
        ".opencode/tools/x.js": script("tools"),
        ".opencode/package.json": json.dumps(package),
        "bunfig.toml": 'preload = ["./preload.js"]\n',
        "preload.js": script("preload"),
        "node_modules/.bin/biome": program("biome"),
        "node_modules/.bin/prettier": program("prettier"),
        "biome.json": "{}",
        "package.json": json.dumps({"name": "y", "devDependencies": {"prettier": "1"}}),
        "node_modules/typescript/package.json": '{"name": "typescript", "version": "5.0.0", "main": "lib/tsserver.js"}',
        "node_modules/typescript/lib/tsserver.js": script("tsserver"),
    }
    return avoidable, {PLUGIN: script("plugin")}


# The user wants formatters and language servers, which would run programs of the project.
USER = {"formatter": True, "lsp": True, "permission": {"*": "allow"}}


@pytest.mark.ci
async def test_nothing_of_an_untrusted_project_runs(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    work = tmp_path / "repo"
    ran.mkdir()
    avoidable, unavoidable = canaries(ran)
    repository(work, avoidable)
    for name in ("biome", "prettier"):
        (work / "node_modules/.bin" / name).chmod(0o755)
    write = Call("write", {"filePath": str(work / "f.ts"), "content": "let a = 1\n"})
    edit = Call("edit", {"filePath": str(work / "f.ts"), "oldString": "1", "newString": "2"})
    async with sandbox(tmp_path, {"work": [[write], [edit], "done"]}, USER) as here:
        async with here.open(cwd=work) as session:
            assert (await end(session, "@@work@@")).text == "done"
        assert not list(ran.iterdir())
        repository(work, unavoidable)
        with pytest.raises(UntrustedProjectError):
            async with here.open(cwd=work):
                pass
        assert not list(ran.iterdir())
        # If trusted, the code runs. The language server is off: OpenCode waits for a silent one.
        content = {**json.loads(here.env["OPENCODE_CONFIG_CONTENT"]), "lsp": False}
        del content["formatter"]
        env = {"OPENCODE_CONFIG_CONTENT": json.dumps(content)}
        async with here.open(cwd=work, trusted=True, env=env) as session:
            assert (await end(session, "@@work@@")).text == "done"
            await eventually(
                lambda: {"mcp", "hidden-mcp", "tool", "plugin", "formatter"} <= {file.name for file in ran.iterdir()}
            )
