"""Test reading MCP servers from the configuration files of each tool."""

from __future__ import annotations

import json
import os
from pathlib import Path
from time import process_time
from typing import Any

import msgspec
import pytest

from atomic.base.formats import parse_jsonc
from atomic.mcp import Location, McpEntry, McpList, McpVariableError, Origin, Transport, load_mcp_entries
from atomic.providers import McpServer
from tests.support.timing import judge


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return folder(tmp_path / "home")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return folder(tmp_path / "project")


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def put(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def one(found: McpList) -> McpEntry:
    assert not found.diagnostics, found.diagnostics
    assert len(found.entries) == 1
    return found.entries[0]


PROGRAM = {"command": "npx", "args": ["-y", "server"], "env": {"LEVEL": "3", "PORT": 80, "ON": True, "NONE": None}}
ADDRESS = {"type": "sse", "url": "https://example.com/sse", "headers": {"X-Team": "blue"}}
OPENCODE = {"type": "local", "command": ["npx", "-y", "server"], "environment": {"LEVEL": "3", "PORT": 80, "ON": True}}
COMMENTED = """{ // mine
 "servers": {"box": {"command": "npx", "args": ["-y", "server"], /* x */
  "env": {"LEVEL": "3", "PORT": 80, "ON": true}},
 },}
"""

FILES = [
    ("project", ".atomic/mcp.json", {"mcpServers": {"box": PROGRAM}}, Origin.ATOMIC),
    ("project", ".mcp.json", {"mcpServers": {"box": PROGRAM}}, Origin.CLAUDE),
    ("project", "opencode.json", {"mcp": {"box": OPENCODE}}, Origin.OPENCODE),
    ("project", "opencode.jsonc", {"mcp": {"box": OPENCODE}}, Origin.OPENCODE),
    ("project", ".opencode/opencode.json", {"mcp": {"box": OPENCODE}}, Origin.OPENCODE),
    ("project", ".opencode/opencode.jsonc", {"mcp": {"box": OPENCODE}}, Origin.OPENCODE),
    ("project", ".vscode/mcp.json", COMMENTED, Origin.VSCODE),
    ("home", ".atomic/mcp.json", {"mcpServers": {"box": PROGRAM}}, Origin.ATOMIC),
    ("home", ".claude.json", {"numStartups": 3, "mcpServers": {"box": PROGRAM}}, Origin.CLAUDE),
    ("home", ".config/opencode/opencode.json", {"mcp": {"box": OPENCODE}}, Origin.OPENCODE),
    ("home", ".opencode/opencode.jsonc", {"mcp": {"box": OPENCODE}}, Origin.OPENCODE),
    ("home", ".copilot/mcp-config.json", {"mcpServers": {"box": {"type": "local", **PROGRAM}}}, Origin.COPILOT),
]


@pytest.mark.parametrize(("where", "name", "content", "origin"), FILES, ids=[f"{row[0]}/{row[1]}" for row in FILES])
def test_a_server_is_found_in_the_file_of_every_tool(
    where: str, name: str, content: Any, origin: Origin, home: Path, project: Path
) -> None:
    path = put((home if where == "home" else project) / name, content)
    entry = one(load_mcp_entries(project, home))
    assert entry == McpEntry(
        name="box",
        transport=Transport.STDIO,
        command=("npx", "-y", "server"),
        env={"LEVEL": "3", "PORT": "80", "ON": "true"},
        origin=origin,
        location=Location.USER if where == "home" else Location.PROJECT,
        path=path,
    )
    assert entry.needs_trust == (where == "project")


@pytest.mark.parametrize(
    ("server", "transport"),
    [
        ({"url": "https://example.com/mcp"}, "http"),
        ({"type": "http", "url": "https://example.com/mcp"}, "http"),
        ({"type": "streamable-http", "url": "https://example.com/mcp"}, "http"),
        (ADDRESS, "sse"),
    ],
)
def test_a_server_may_be_an_address(server: dict[str, Any], transport: str, home: Path, project: Path) -> None:
    put(project / ".mcp.json", {"mcpServers": {"far": server}})
    entry = one(load_mcp_entries(project, home))
    assert (entry.transport, entry.url, entry.command) == (transport, server["url"], ())
    assert entry.headers == server.get("headers", {})


def test_a_remote_server_of_opencode_is_read(home: Path, project: Path) -> None:
    put(project / "opencode.json", {"mcp": {"far": {"type": "remote", "url": "https://a.b", "enabled": False}}})
    entry = one(load_mcp_entries(project, home))
    assert (entry.transport, entry.url, entry.enabled) == ("http", "https://a.b", False)


def test_both_versions_of_opencodes_configuration_are_read_from_one_file(home: Path, project: Path) -> None:
    far = {"type": "remote", "url": "https://a.b", "disabled": True}
    servers = {"newer": OPENCODE, "far": far, "both": OPENCODE, "off": OPENCODE}
    older = {"older": OPENCODE, "both": far, "off": {"enabled": False}}
    put(project / "opencode.json", {"mcp": {"timeout": {"startup": 5000}, "servers": servers, **older}})
    found = load_mcp_entries(project, home)
    assert found.diagnostics == []
    assert {entry.name: (entry.transport, entry.enabled) for entry in found.entries} == {
        "newer": ("stdio", True), "far": ("http", False), "both": ("stdio", True), "off": ("stdio", False),
        "older": ("stdio", True),
    }  # fmt: skip
    assert {entry.command for entry in found.entries} == {("npx", "-y", "server"), ()}


@pytest.mark.parametrize("name", ["servers", "timeout"])
def test_a_server_of_opencode_may_have_a_name_of_the_newer_form(name: str, home: Path, project: Path) -> None:
    put(project / "opencode.json", {"mcp": {name: OPENCODE}})
    assert one(load_mcp_entries(project, home)).name == name
    put(home / ".opencode/opencode.json", {"mcp": {"servers": {name: OPENCODE}}})
    put(project / "opencode.json", {"mcp": {name: {"enabled": False}}})
    assert not one(load_mcp_entries(project, home)).enabled


def test_a_broken_server_in_the_newer_form_costs_one_line(home: Path, project: Path) -> None:
    put(project / "opencode.json", '{"mcp": {"servers": {"good": {"type": "local", "command": ["x"]},\n"bad": 3}}}')
    found = load_mcp_entries(project, home)
    assert [entry.name for entry in found.entries] == ["good"]
    assert [(one.line, one.reason) for one in found.diagnostics] == [
        (2, 'MCP server "bad": a server must be an object')
    ]


def test_servers_for_one_project_in_claudes_user_file_need_no_trust(home: Path, project: Path, tmp_path: Path) -> None:
    servers = {str(project): {"mcpServers": {"mine": PROGRAM}}, str(tmp_path): {"mcpServers": {"other": PROGRAM}}}
    put(home / ".claude.json", {"projects": servers, "mcpServers": {"mine": ADDRESS}})
    found = load_mcp_entries(project, home)
    assert [(entry.name, entry.transport, entry.hidden_by) for entry in found.entries] == [
        ("mine", "stdio", None),
        ("mine", "sse", home / ".claude.json"),
    ]
    assert not found.entries[0].needs_trust


def test_servers_disabled_in_the_files_of_a_tool_are_disabled(home: Path, project: Path) -> None:
    off = {"disabledMcpServers": ["mine"], "disabledMcpjsonServers": ["shared"]}
    put(home / ".claude.json", {"projects": {str(project): off}, "mcpServers": {"mine": PROGRAM, "on": PROGRAM}})
    put(project / ".mcp.json", {"mcpServers": {"shared": PROGRAM, "out": {**PROGRAM, "disabled": True}}})
    put(home / ".opencode/opencode.json", {"mcp": {"jira": OPENCODE}})
    put(project / "opencode.json", {"mcp": {"jira": {"enabled": False}}})
    found = load_mcp_entries(project, home)
    assert {entry.name: entry.enabled for entry in found.entries} == {
        "mine": False, "on": True, "shared": False, "out": False, "jira": False,
    }  # fmt: skip


def test_a_project_cannot_enable_a_server_that_the_user_disabled(home: Path, project: Path) -> None:
    put(home / ".opencode/opencode.json", {"mcp": {"jira": {**OPENCODE, "enabled": False}}})
    put(project / "opencode.json", {"mcp": {"jira": {"enabled": True}}})
    assert not one(load_mcp_entries(project, home)).enabled


def test_precedence_is_project_then_user_then_the_order_of_tools(home: Path, project: Path) -> None:
    for where, name, content, _ in FILES:
        put((home if where == "home" else project) / name, content)
    found = load_mcp_entries(project, home)
    assert [(entry.location, entry.origin) for entry in found.entries] == [
        *(("project", origin) for origin in ("atomic", "claude", *["opencode"] * 4, "vscode")),
        *(("user", origin) for origin in ("atomic", "claude", *["opencode"] * 2, "copilot")),
    ]
    winner = project / ".atomic/mcp.json"
    assert [entry.hidden_by for entry in found.entries] == [None, *[winner] * 11]
    assert [entry.path for entry in found.winners] == [winner]
    winner.unlink()
    assert load_mcp_entries(project, home).winners[0].path == project / ".mcp.json"


def test_servers_of_a_project_are_usable_only_with_trust(home: Path, project: Path) -> None:
    put(home / ".claude.json", {"mcpServers": {"mine": PROGRAM, "off": {**PROGRAM, "enabled": False}}})
    put(project / ".mcp.json", {"mcpServers": {"theirs": PROGRAM}})
    found = load_mcp_entries(project, home)
    assert [entry.name for entry in found.usable(trusted=False)] == ["mine"]
    assert [entry.name for entry in found.usable(trusted=True)] == ["theirs", "mine"]


def test_an_entry_has_the_fields_of_a_sessions_server(home: Path, project: Path) -> None:
    put(project / ".mcp.json", {"mcpServers": {"box": PROGRAM}})
    entry = one(load_mcp_entries(project, home))
    server = McpServer(name=entry.name, command=entry.command, env=entry.env, url=entry.url, headers=entry.headers)
    assert list(server.command) == ["npx", "-y", "server"]


def test_variables_name_the_folders_of_the_user(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "HOME": "home",
        "ATOMIC_HOME": "a",
        "CLAUDE_CONFIG_DIR": "b",
        "XDG_CONFIG_HOME": "c",
        "COPILOT_HOME": "d",
    }
    for variable, name in variables.items():
        monkeypatch.setenv(variable, str(tmp_path / name))
    put(tmp_path / "a/mcp.json", {"mcpServers": {"a": PROGRAM}})
    put(tmp_path / "b/.claude.json", {"mcpServers": {"b": PROGRAM}})
    put(tmp_path / "c/opencode/opencode.json", {"mcp": {"c": OPENCODE}})
    put(tmp_path / "d/mcp-config.json", {"mcpServers": {"d": PROGRAM}})
    monkeypatch.chdir(project)
    assert [entry.name for entry in load_mcp_entries().entries] == ["a", "b", "c", "d"]


def test_a_file_of_both_project_and_user_belongs_to_the_user(home: Path) -> None:
    put(home / ".atomic/mcp.json", {"mcpServers": {"box": PROGRAM}})
    assert one(load_mcp_entries(home, home)).location is Location.USER


# Broken files


BROKEN = [
    ('{\n "mcpServers": {\n', 3, "not JSON"),
    ("{ /* one\n two\n three */ nonsense }", 3, "not JSON"),
    ("[]", 1, "not an object"),
    ('{"mcpServers": []}', 1, "must be an object"),
    ('{"mcpServers": {\n"box": 5}}', 2, "must be an object"),
    ('{"mcpServers": {\n\n"box": {}}}', 3, 'neither a "command" nor a "url"'),
    ('{"mcpServers": {"box": {"command": []}}}', 1, '"command" must be'),
    ('{"mcpServers": {"box": {"command": "a", "args": "b"}}}', 1, '"args" must be'),
    ('{"mcpServers": {"box": {"command": "a", "args": ["\\u0000"]}}}', 1, "NUL"),
    ('{"mcpServers": {"box": {"command": "a", "env": ["B"]}}}', 1, '"env" must be'),
    ('{"mcpServers": {"box": {"command": "a", "env": {"B": []}}}}', 1, '"env" must hold'),
    ('{"mcpServers": {"box": {"type": "carrier pigeon", "url": "https://a.b"}}}', 1, '"type" must be'),
    ('{"mcpServers": {"box": {"url": ""}}}', 1, '"url" must be'),
    ('{"mcpServers": {"\\u001b[2Jbox": {"command": "a"}}}', 1, "printable name"),
    ('{"mcpServers": {"box": {"command": "a"}, "box": {"command": "b"}}}', 1, "twice"),
    ("{" + '"a":{' * 20_000, 1, "too deep"),
]


@pytest.mark.parametrize(("text", "line", "reason"), BROKEN, ids=[row[2] for row in BROKEN])
def test_a_broken_file_is_one_diagnostic_and_other_files_are_read(
    text: str, line: int, reason: str, home: Path, project: Path
) -> None:
    path = put(project / ".mcp.json", text)
    put(project / ".atomic/mcp.json", {"mcpServers": {"good": PROGRAM}})
    found = load_mcp_entries(project, home)
    assert [entry.name for entry in found.entries] == ["good"]
    assert [(problem.path, problem.line) for problem in found.diagnostics] == [(path, line)]
    assert reason in found.diagnostics[0].reason
    assert "\x1b" not in str(found.diagnostics[0])


def test_a_broken_server_does_not_affect_others_in_its_file(home: Path, project: Path) -> None:
    put(project / ".mcp.json", {"mcpServers": {"bad": {"command": 5}, "good": PROGRAM}})
    found = load_mcp_entries(project, home)
    assert [entry.name for entry in found.entries] == ["good"]
    assert len(found.diagnostics) == 1


@pytest.mark.parametrize("key", ["cwd", "envFile"])
def test_unsupported_options_of_a_server_are_reported(key: str, home: Path, project: Path) -> None:
    put(project / ".mcp.json", {"mcpServers": {"box": {**PROGRAM, key: "x"}}})
    found = load_mcp_entries(project, home)
    assert [entry.name for entry in found.entries] == ["box"]
    assert key in found.diagnostics[0].reason


@pytest.mark.parametrize("content", [b"", b"  \n", b'\xef\xbb\xbf{"mcpServers": {}}\r\n', b'{"other": 1}'])
def test_a_file_without_servers_is_valid(content: bytes, home: Path, project: Path) -> None:
    (project / ".mcp.json").write_bytes(content)
    assert load_mcp_entries(project, home) == McpList([], [])


@pytest.mark.parametrize("content", [b'{"mcpServers": \xff}', '{"mcpServers": {}}'.encode("utf-16"), b'{"a": 1}\0'])
def test_a_file_that_is_not_utf8_is_one_diagnostic(content: bytes, home: Path, project: Path) -> None:
    (project / ".mcp.json").write_bytes(content)
    assert len(load_mcp_entries(project, home).diagnostics) == 1


@pytest.mark.timed
def test_a_hostile_file_is_rejected_quickly(home: Path, project: Path) -> None:
    for text in ('{"a": 1,' + "/**/" * 100_000 + "x", '"' + '\\"' * 400_000, "{" + "/*a" * 300_000):
        put(project / ".mcp.json", text)
        before = process_time()
        assert len(load_mcp_entries(project, home).diagnostics) == 1
        judge(process_time() - before, 2)


def test_errors_in_json_with_comments_have_the_right_line() -> None:
    with pytest.raises(json.JSONDecodeError) as error:
        parse_jsonc('{"a": "/* no comment */", /*\n\n*/ // more\n "b": ?}')
    assert error.value.lineno == 4


# Files that are not regular


def test_only_regular_files_are_read(home: Path, project: Path) -> None:
    os.mkfifo(project / ".mcp.json")
    (project / "opencode.json").mkdir()
    folder(project / ".atomic")
    (project / ".atomic/mcp.json").symlink_to("mcp.json")
    folder(project / ".vscode")
    (project / ".vscode/mcp.json").symlink_to("/dev/zero")
    found = load_mcp_entries(project, home)
    assert not found.entries
    assert len(found.diagnostics) == 4


def test_a_link_is_followed_only_inside_the_project_or_the_home_folder(
    home: Path, project: Path, tmp_path: Path
) -> None:
    outside = put(tmp_path / "outside/mcp.json", {"mcpServers": {"outside": PROGRAM}})
    (project / ".mcp.json").symlink_to(outside)
    (project / ".atomic").symlink_to(outside.parent)
    (home / ".claude.json").symlink_to(outside)
    put(project / "tools/mcp.json", {"mcp": {"inside": OPENCODE}})
    (project / "opencode.json").symlink_to("tools/mcp.json")
    put(home / "dotfiles/copilot.json", {"mcpServers": {"mine": PROGRAM}})
    folder(home / ".copilot")
    (home / ".copilot/mcp-config.json").symlink_to(home / "dotfiles/copilot.json")
    found = load_mcp_entries(project, home)
    assert [entry.name for entry in found.entries] == ["inside", "mine"]
    assert [problem.path for problem in found.diagnostics] == [
        project / ".atomic/mcp.json", project / ".mcp.json", home / ".claude.json",
    ]  # fmt: skip


def test_only_claudes_user_file_may_be_larger_than_a_megabyte(home: Path, project: Path) -> None:
    big = {"mcpServers": {"box": PROGRAM}, "history": "x" * 1_100_000}
    put(project / ".mcp.json", big)
    put(home / ".claude.json", big)
    found = load_mcp_entries(project, home)
    assert [entry.location for entry in found.entries] == ["user"]
    assert "longer than" in found.diagnostics[0].reason


# Variables and secrets


def entry_of(origin: Origin, **fields: Any) -> McpEntry:
    transport = Transport.HTTP if "url" in fields else Transport.STDIO
    path = Path("/shop/.vscode/mcp.json")
    return McpEntry(name="box", transport=transport, origin=origin, location=Location.PROJECT, path=path, **fields)


@pytest.mark.parametrize(
    ("origin", "text", "expected"),
    [
        (Origin.CLAUDE, "a ${X} b", "a 1 b"),
        (Origin.CLAUDE, "${X:-2}${Y:-2}", "12"),
        (Origin.COPILOT, "${env:X}", "1"),
        (Origin.VSCODE, "${workspaceFolder}/${env:X}", "/shop/1"),
        (Origin.ATOMIC, "$X {env:X}", "$X {env:X}"),
        (Origin.OPENCODE, "{env:X}{env:Y}", "1"),
        (Origin.OPENCODE, "${X}", "${X}"),
    ],
)
def test_variables_are_expanded_when_a_session_uses_the_server(origin: Origin, text: str, expected: str) -> None:
    entry = entry_of(origin, command=("run", text), env={"A": text})
    resolved = entry.resolved({"X": "1"})
    assert (resolved.command, resolved.env) == (("run", expected), {"A": expected})
    assert entry.command == ("run", text)
    far = entry_of(origin, url=text, headers={"A": text}).resolved({"X": "1"})
    assert (far.url, far.headers) == (expected, {"A": expected})


def test_an_expanded_value_is_not_expanded_again() -> None:
    assert entry_of(Origin.CLAUDE, command=("${X}",)).resolved({"X": "${Y}", "Y": "no"}).command == ("${Y}",)


@pytest.mark.parametrize("text", ["${MISSING}", "${env:MISSING}", "${input:token-1}"])
def test_the_error_names_a_variable_without_a_value(text: str) -> None:
    with pytest.raises(McpVariableError, match=r"box.*(MISSING|input:token-1)"):
        entry_of(Origin.VSCODE, command=("run", text)).resolved({})


def test_no_secret_is_shown() -> None:
    program = entry_of(
        Origin.CLAUDE,
        command=("npx", "--api-key", "hunter2", "--token=hunter2", "-e", "API_KEY=hunter2", "s3cr3t-value"),
        env={"SERVICE_TOKEN": "s3cr3t-value"},
    )
    far = entry_of(
        Origin.CLAUDE, url="https://me:hunter2@example.com/mcp?k=hunter2", headers={"Authorization": "Bearer hunter2"}
    )
    shown = repr([program, far]) + str(program) + repr(program.shown_command) + repr(far.shown_url)
    assert "hunter2" not in shown
    assert "s3cr3t" not in shown
    assert "SERVICE_TOKEN" in repr(program)
    assert far.shown_url == "https://example.com/mcp?[redacted]"
    assert program.shown_command[:2] == ("npx", "--api-key")
    assert "hunter2" not in repr(msgspec.structs.replace(far, enabled=False))
