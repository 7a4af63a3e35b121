"""Copy a workflow of someone else into the user's own folder, pinned by its hash.

The source is a file, a folder or a git repository. A repository is fetched into an empty
one of our own and read with git alone: nothing is checked out, so no hook, filter or
link of it has an effect. Nothing runs before the user has seen and approved the file.
"""

from __future__ import annotations

import ast
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from atomic.base.files import replace_file
from atomic.base.untrusted_files import MAX_BYTES, read_bounded, reason_of
from atomic.config import atomic_home, config_home, ralph_flags
from atomic.git import GitError, read_address
from atomic.git.calls import run_git, split
from atomic.loading.metadata import is_name, parse_source, read_metadata
from atomic.processes.temporary_folders import temporary_prefix
from atomic.workflows.errors import WorkflowFileError

# Where a repository or a folder has its workflows; the first folder with some counts.
_FOLDERS = (".atomic/workflows", "workflows", "")
_REF = re.compile(r"[A-Za-z0-9_][\w./-]*")
_HOST = re.compile(r"[a-z]+://[^/]*|[^/]*?:")  # the beginning of an address, up to its path
_FETCH_SECONDS = 300.0
_CONNECTION = ("GIT_ASKPASS", "GIT_CONFIG_", "GIT_HTTP_", "GIT_PROXY_", "GIT_SSH", "GIT_SSL_")


class Offer(msgspec.Struct, frozen=True):
    """A workflow that can be added."""

    name: str
    source: str  # as the user gave it, without the revision
    path: str  # below the source
    data: bytes
    revision: str = ""
    commit: str = ""

    @property
    def sha256(self) -> str:
        """The hash that pins it."""
        return sha256(self.data).hexdigest()

    @property
    def origin(self) -> str:
        """Where it is from, in short."""
        return f"{self.source}@{self.commit[:12]}" if self.commit else self.source


class Pin(msgspec.Struct, frozen=True):
    """Where an added workflow is from, and what it was."""

    source: str
    path: str
    sha256: str
    added_at: str
    revision: str = ""
    commit: str = ""


class _Pins(msgspec.Struct):
    version: int = 1
    workflows: dict[str, Pin] = {}


async def find_offer(source: str, name: str = "") -> Offer:
    """Return the workflow of a source; `name` chooses one of several.

    Raises WorkflowFileError.
    """
    local = _local(source)
    offers, files = await _fetched(source) if local is None else local
    chosen = _choose([offer for offer in offers if offer is not None], name, source)
    if not is_name(chosen.name):
        raise WorkflowFileError(f'{source}: "{chosen.name}" cannot name a workflow')
    if chosen.name in (ralph_flags.NAME, *ralph_flags.ALIASES):
        raise WorkflowFileError(
            f'{source}: "{chosen.name}" is a workflow of Atomic, which this would replace: give it another name'
        )
    _refuse_neighbours(chosen, files)
    return chosen


def _local(source: str) -> tuple[list[Offer | None], Mapping[str, bytes]] | None:
    """Return the workflows of a file or folder, and all Python files beside them.

    None if it should be an address.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        files = _files_in(path)
        return [_offer(source, place, data) for place, data in files.items()], files
    if not path.exists() and not source.endswith(".py"):
        return None
    try:
        data = read_bounded(path)
        beside = {name: b"" for name in os.listdir(path.parent) if _is_one(name)}
    except OSError as error:
        raise WorkflowFileError(f"{source}: {reason_of(error)}") from error
    return [_offer(source, path.name, data)], beside


def find_added(offer: Offer) -> Path | None:
    """Return the file of a workflow that was added from the same source and has not
    changed since; None if there is no such file. Raises WorkflowFileError.
    """
    file = config_home() / "workflows" / f"{offer.name}.py"
    known = read_pins().get(offer.name)
    if known is None or known != msgspec.structs.replace(_pin_of(offer), added_at=known.added_at):
        return None
    try:
        return file if read_bounded(file) == offer.data else None
    except OSError:
        return None


def _pin_of(offer: Offer) -> Pin:
    source = offer.source if offer.commit else os.path.abspath(offer.source)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return Pin(source, offer.path, offer.sha256, when, offer.revision, offer.commit)


def add(offer: Offer) -> Path:
    """Write a workflow that the user has approved, and remember where it is from.

    An older copy of the same workflow is replaced unless it was edited. Raises
    WorkflowFileError.
    """
    folder = config_home() / "workflows"
    file = folder / f"{offer.name}.py"
    pins = read_pins()
    known = pins.get(offer.name)
    try:
        if os.path.lexists(file):
            old = sha256(read_bounded(file)).hexdigest()
            if known is None or (old != known.sha256 and old != offer.sha256):
                what = "is your own" if known is None else "has been edited since it was added"
                raise WorkflowFileError(f"{file}: this file {what}; move it away to add another one")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_home().mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(file, offer.data)
        workflows = {**pins, offer.name: _pin_of(offer)}
        replace_file(_pin_file(), msgspec.json.encode(_Pins(workflows=workflows), order="sorted"))
    except OSError as error:
        raise WorkflowFileError(f"{error.filename or file}: {reason_of(error)}") from error
    return file


def read_pins() -> Mapping[str, Pin]:
    """Return the added workflows by name. Raises WorkflowFileError."""
    try:
        return msgspec.json.decode(read_bounded(_pin_file()), type=_Pins).workflows
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise WorkflowFileError(f"{_pin_file()}: this list of added workflows cannot be read: {reason}") from error


def _pin_file() -> Path:
    return atomic_home() / "added.json"


def _files_in(folder: Path) -> dict[str, bytes]:
    for below in _FOLDERS:
        try:
            names = sorted(os.listdir(folder / below))
            files = {os.path.join(below, name): read_bounded(folder / below / name) for name in names if _is_one(name)}
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise WorkflowFileError(f"{error.filename or folder}: {reason_of(error)}") from error
        if any(read_metadata(data, "").has_workflow for data in files.values()):
            return files
    return {}


async def _fetched(source: str) -> tuple[list[Offer | None], dict[str, bytes]]:
    """Return the workflows of a git repository, and all Python files beside them."""
    address, revision = _split(source)
    with tempfile.TemporaryDirectory(prefix=temporary_prefix("add")) as folder:
        try:
            await run_git("init", "--quiet", "--bare", "--template=", folder, cwd=folder, env={})
            await _fetch(address, revision or "HEAD", folder)
            commit = (await run_git("rev-parse", "FETCH_HEAD^{commit}", cwd=folder, env={})).strip()
            listed = split(await run_git("ls-tree", "-r", "-z", "--long", commit, cwd=folder, env={}))
            blobs = dict(_blobs(listed))
            for below in _FOLDERS:
                files: dict[str, bytes] = {}
                for path, id in blobs.items():
                    if os.path.dirname(path) == below and _is_one(os.path.basename(path)):
                        text = await run_git("cat-file", "blob", id, cwd=folder, env={})
                        files[path] = text.encode("utf-8", "surrogateescape")
                offers = [_offer(address, path, data, revision, commit) for path, data in files.items()]
                if any(offer is not None for offer in offers):
                    return offers, files
        except GitError as error:
            raise WorkflowFileError(f"{address}: {_reason(error)}") from error
    return [], {}


def _reason(error: GitError) -> str:
    """Return what has failed; git may add several lines of advice to it."""
    lines = error.reason.splitlines()
    return next((line for line in lines if line.startswith("fatal: ")), lines[-1])


async def _fetch(address: str, revision: str, folder: str) -> None:
    env = {
        "GIT_CONFIG_GLOBAL": os.environ.get("GIT_CONFIG_GLOBAL"),  # the user's login, proxy and ssh command
        "GIT_CONFIG_NOSYSTEM": os.environ.get("GIT_CONFIG_NOSYSTEM"),
        "GIT_ALLOW_PROTOCOL": "https:ssh:file",
    }
    base = {name: value for name, value in os.environ.items() if _is_for_connection(name)}
    words = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--", address, revision)
    await run_git(*words, cwd=folder, env=env, base=base, timeout=_FETCH_SECONDS, is_short=False)


def _is_for_connection(name: str) -> bool:
    return not name.startswith("GIT_") or name.startswith(_CONNECTION)


def _blobs(listed: Sequence[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for entry in listed:
        facts, _, path = entry.partition("\t")
        mode, _, id, size = facts.split()
        if mode in ("100644", "100755") and int(size) <= MAX_BYTES:  # no links and submodules
            found.append((path, id))
    return found


def _split(source: str) -> tuple[str, str]:
    """Split URL@ref. Raises WorkflowFileError."""
    host = _HOST.match(source)
    begin = 0 if host is None else host.end()  # an @ before it belongs to the login
    path, _, revision = source[begin:].partition("@")
    if source.startswith("file:///") and os.path.isdir(source[begin:]):
        path = source[begin:]
        revision = ""
    address = f"{source[:begin]}{path}"
    if address.startswith("https://") and ":" in urlsplit(address).netloc.rpartition("@")[0]:
        raise WorkflowFileError(
            "this address has a password, which would be kept: leave it out, git asks for it or has it from its helper"
        )
    if revision and _REF.fullmatch(revision) is None:
        raise WorkflowFileError(f'"{revision}" is no branch, tag or commit')
    if address.startswith("file:///"):
        return address, revision
    try:
        read_address(address)
    except ValueError as error:
        message = f"{source}: there is no such file, and as the address of a repository {error}"
        raise WorkflowFileError(message.replace("can be pushed to", "are allowed")) from error
    return address, revision


def _is_one(name: str) -> bool:
    return name.endswith(".py") and not name.startswith(".")


def _offer(source: str, path: str, data: bytes, revision: str = "", commit: str = "") -> Offer | None:
    stem = os.path.basename(path).removesuffix(".py")
    metadata = read_metadata(data, stem)
    if stem.startswith("_") or not metadata.has_workflow:
        return None
    return Offer(metadata.name, source, path, data, revision, commit)


def _choose(offers: Sequence[Offer], name: str, source: str) -> Offer:
    if not offers:
        raise WorkflowFileError(f"{source}: there is no workflow in {', '.join(_FOLDERS[:2])} or at the top of it")
    found = [offer for offer in offers if not name or offer.name == name]
    names = ", ".join(offer.name for offer in offers)
    if not found:
        raise WorkflowFileError(f'{source}: there is no workflow "{name}", only {names}')
    if len(found) > 1:
        raise WorkflowFileError(f"{source}: there are several workflows: {names}. Name one of them after the source")
    return found[0]


def _refuse_neighbours(offer: Offer, files: Mapping[str, bytes]) -> None:
    """Raise WorkflowFileError if it imports files that would be missing."""
    beside = {os.path.basename(path).removesuffix(".py") for path in files}
    for node in ast.walk(parse_source(offer.data)):
        modules: list[str] = []
        if isinstance(node, ast.ImportFrom):
            modules = [(node.module or ".").partition(".")[0]]
            if node.level:
                modules = [f".{node.module or ''}"]
        elif isinstance(node, ast.Import):
            modules = [alias.name.partition(".")[0] for alias in node.names]
        for module in modules:
            if module.startswith(".") or module in beside:
                raise WorkflowFileError(
                    f"{offer.path} imports {module}, a file beside it: only single files can be added. "
                    "Install it as a Python package instead, or copy its folder"
                )
