"""`atomic mcp list`: the servers of every tool, and no secret."""

from __future__ import annotations

from pathlib import Path

import msgspec

from atomic.cli.mcp import NO_SERVERS
from tests.support.entity_files import servers, write
from tests.support.user import User

TOKEN = "ghp_" + "a1B2" * 9


def configure(user: User) -> Path:
    servers(
        user.project / ".mcp.json",
        files={"command": "npx", "args": ["files", f"--token={TOKEN}"], "env": {"FILES_KEY": "s3cr3t-in-env"}},
        web={
            "type": "http",
            "url": f"https://me:{TOKEN}@x.test/mcp?key={TOKEN}",
            "headers": {"Authorization": "Bearer s3cr3t-in-header"},
        },
    )
    return servers(user.home / ".atomic" / "mcp.json", mine={"command": "mine"}, files={"command": "other"})


async def test_json_has_name_transport_command_url_origin_path_and_state(user: User) -> None:
    own = configure(user)
    done = await user.atomic("mcp", "list", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    found = {(row["name"], row["origin"]): row for row in msgspec.json.decode(done.stdout)}
    assert sorted(found) == [("files", "atomic"), ("files", "claude"), ("mine", "atomic"), ("web", "claude")]
    mine = found["mine", "atomic"]
    assert (mine["transport"], mine["command"], mine["url"], mine["path"], mine["enabled"]) == (
        "stdio", ["mine"], None, str(own), True,
    )  # fmt: skip
    web = found["web", "claude"]
    assert (web["transport"], web["command"]) == ("http", None)
    assert web["url"].startswith("https://x.test/mcp")
    assert found["files", "atomic"]["hidden_by"] == str(user.project / ".mcp.json")


async def test_no_secret_is_printed(user: User) -> None:
    configure(user)
    for words in (["mcp"], ["mcp", "list"], ["mcp", "list", "--json"], ["-p", "/mcp"]):
        done = await user.atomic(*words)
        assert done.exit_code == 0
        assert "files" in done.stdout
        assert TOKEN not in done.stdout + done.stderr
        assert "s3cr3t" not in done.stdout + done.stderr


async def test_a_broken_file_is_reported_and_the_others_are_listed(user: User) -> None:
    configure(user)
    write(user.project / ".vscode" / "mcp.json", "{")
    done = await user.atomic("mcp", "list")
    assert "mine" in done.stdout
    assert done.stderr.startswith(f"atomic: {user.project}/.vscode/mcp.json:1: ")


async def test_a_server_is_switched_by_the_slash_command(user: User) -> None:
    configure(user)
    done = await user.atomic("-p", "/mcp disable web")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "web is off.\n", "")
    rows = msgspec.json.decode((await user.atomic("mcp", "--json")).stdout)
    assert [row["enabled"] for row in rows if row["name"] == "web"] == [False]


async def test_an_empty_list_has_a_message(user: User) -> None:
    assert (await user.atomic("mcp", "list")).stdout == NO_SERVERS
    assert (await user.atomic("mcp", "list", "--json")).stdout == "[]\n"
