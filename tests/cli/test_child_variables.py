"""Variables with secrets in them reach neither agents nor MCP servers, whatever their names are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from atomic.testing.conformance.cases.tools import MCP_SERVER
from tests.support.entity_files import servers
from tests.support.fake_acp import PROGRAM
from tests.support.user import User

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCY",
    "AZURE_DEVOPS_EXT_PAT": "abcdefgh",
    "AZURE_STORAGE_CONNECTION_STRING": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abcdefgh0123==",
    "BASIC_AUTH": "me:correct-horse",
    "COOKIE": "session=abcdefgh",
    "DATABASE_URL": "postgres://app:s3cret@db.example.org/app",
    "DB_PASS": "correct-horse",
    "DEPLOY": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "DOCKER_AUTH_CONFIG": '{"auths": {}}',
    "GIT_REMOTE": "https://abcdefgh0123456789abcdef@example.org/x.git",
    "JWT": "eyJhbGciOiJIUzI1NiJ9",
    "MY_PAT": "abcdefgh",
    "MYSQL_PWD": "correct-horse",
    "PASSPHRASE": "correct horse",
    "PGPASSWD": "correct-horse",
    "REDIS_URL": "redis://:s3cret@cache:6379/0",
    "SENTRY_DSN": "https://abcdef@sentry.example.org/1",
    "SIGNING": "-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----",
    "SLACK_WEBHOOK_URL": "https://hooks.example.org/services/T0/B0/x",
}
HARMLESS = {
    "COOKIE_DOMAIN": "example.org",
    "DATABASE_HOST": "db.example.org",
    "GIT_ASKPASS": "/usr/bin/askpass",
    "HTTPS_PROXY": "http://me:pa55word@proxy.example.org:3128",
    "JAVA_HOME": "/usr/lib/jvm/default",
    "LOCAL_URL": "postgres://localhost/app",
    "OLDPWD": "/tmp",
    "OS_AUTH_URL": "https://keystone.example.org",
    "RUSTUP_HOME": "/opt/rustup",
    "SSH_AUTH_SOCK": "/tmp/ssh-agent/agent.1",
    "START_PWD": "/srv/work",
    "XAUTHORITY": "/run/user/1000/xauth",
}


@pytest.fixture
def dumped(user: User, tmp_path: Path) -> Path:
    """Return a folder in which an agent and an MCP server leave the names of their variables."""
    user.env |= SECRETS | HARMLESS
    leave = "/usr/bin/env -0 > '{}/{}'; exec '{}' '{}'"
    server = ["-c", leave.format(tmp_path, "server", sys.executable, MCP_SERVER)]
    servers(user.home / ".atomic" / "mcp.json", box={"command": "/bin/sh", "args": server})
    agent = ["/bin/sh", "-c", leave.format(tmp_path, "agent", sys.executable, PROGRAM)]
    user.sets(f'[env]\npass = ["MY_PAT"]\n[acp.puppet]\ncommand = {json.dumps(agent)}\n')
    return tmp_path


def names(file: Path) -> set[str]:
    return {entry.partition("=")[0] for entry in file.read_text().split("\0")}


async def test_a_child_gets_variables_without_secrets_and_those_the_user_passes(user: User, dumped: Path) -> None:
    done = await user.atomic("-p", "--agent", "acp:puppet", '[{"say": "Hello."}]')
    assert done.stdout == "Hello.\n", done.stderr
    for child in ("agent", "server"):
        seen = names(dumped / child)
        assert seen & SECRETS.keys() == {"MY_PAT"}, child
        assert seen >= HARMLESS.keys(), child
