"""What `atomic doctor` finds out about this machine beside the agents: keys, a sandbox, and what was kept."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from atomic.base.redaction import is_secret
from atomic.base.untrusted_files import read_start
from atomic.config import Settings, atomic_home, config_files
from atomic.loading.trust_store import TrustStore
from atomic.sessions.errors import SessionDamagedError
from atomic.sessions.model import SessionStatus
from atomic.sessions.store import SessionStore, read_record
from atomic.workflows.errors import TrustError

_OF_AGENTS = ("ANTHROPIC_", "CLAUDE_", "COPILOT_", "GH_", "GITHUB_", "OPENCODE_")
_CONTAINERS = ("/.dockerenv", "/run/.containerenv")
_MAGIC = b"SQLite format 3\0"


class Check(msgspec.Struct, frozen=True):
    """Something else than an agent that Atomic needs."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def check_keys(settings: Settings) -> Check:
    """The names of the keys that agents get, never a value; and whether somebody else can read those in a file."""
    file, _ = config_files()
    if _holds_keys(settings) and _others_can_read(file):
        return Check("keys", False, f"{file} holds keys, and others can read it", f"chmod 600 {file}")
    passed = settings.env.pass_
    found = [name for name in sorted(os.environ) if name in passed or (name.startswith(_OF_AGENTS) and is_secret(name))]
    return Check("keys", True, ", ".join(found) or "none in the environment: each agent has its own login")


def _holds_keys(settings: Settings) -> bool:
    return any(is_secret(name) for known in settings.providers.values() for name in known.env)


def _others_can_read(file: Path) -> bool:
    return file.is_file() and bool(file.stat().st_mode & 0o077)


def check_sandbox() -> Check:
    """Agents run all tools without asking, so this is how far they reach."""
    reach = "as root" if os.geteuid() == 0 else f"with the rights of {_user()}"
    inside = any(map(os.path.exists, _CONTAINERS)) or "container" in os.environ
    where = "in this container" if inside else "no container is seen"
    return Check("sandbox", True, f"agents run all tools without asking, {reach}; {where}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name
        return f"user {os.geteuid()}"


def check_integrity() -> Check:
    """Whether what was kept can be read: sessions, their journals, what was approved."""
    store = SessionStore(atomic_home())
    ids = sorted(store.ids())
    problems = [problem for id in ids for problem in _problems(store.place_of(id))]
    try:
        TrustStore().find("/")
    except TrustError as error:
        problems.append(str(error))
    if not problems:
        return Check("integrity", True, f"{len(ids)} session{'' if len(ids) == 1 else 's'}, all can be read")
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Check("integrity", False, f"{problems[0]}{more}", "docs/sessions.md says what can be done")


def _problems(folder: Path) -> Iterator[str]:
    is_new = False
    try:
        is_new = read_record(folder).status is SessionStatus.RUNNING  # its journal is on its way
    except SessionDamagedError as error:
        yield str(error)
    if folder.stat().st_mode & 0o077:
        yield f"{folder}: others can look into it"
    try:
        begin = read_start(folder / "journal.db", len(_MAGIC))
        if begin not in (_MAGIC, b""):  # empty: the run was cut before its first step
            yield f"{folder}/journal.db is damaged"
    except OSError as error:
        if not is_new:
            yield f"{folder}/journal.db: {error.strerror}"
