"""A repository can name programs in many settings; none runs when Atomic calls git."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atomic.git import Changes, apply_changes, find_repository, watch_folder
from tests.support.repositories import commit, content, copy, git, new_repository, write

HOOKS = [
    *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg"),
    *("commit-msg", "post-commit", "post-checkout", "post-merge", "pre-auto-gc", "post-rewrite", "post-index-change"),
    *("reference-transaction", "fsmonitor-watchman"),
]


def hostile(folder: Path, canaries: Path) -> None:
    """Make a repository name a program in every possible setting and hook."""
    trap = canaries / "trap.sh"
    trap.write_text(f'#!/bin/sh\ntouch "{canaries}/sang-$1"\nexec cat\n')
    trap.chmod(0o755)
    settings = {
        "core.fsmonitor": "fsmonitor",
        "core.pager": "pager",
        "core.editor": "editor",
        "core.sshCommand": "ssh",
        "core.askPass": "askpass",
        "core.alternateRefsCommand": "alternate",
        "diff.external": "external",
        "diff.trap.textconv": "textconv",
        "diff.trap.command": "command",
        "filter.trap.clean": "clean",
        "filter.trap.smudge": "smudge",
        "filter.trap.process": "process",
        "merge.trap.driver": "merge",
        "gpg.program": "gpg",
        "commit.gpgSign": "true",
        "credential.helper": "credential",
        "interactive.diffFilter": "interactive",
        "sequence.editor": "sequence",
        "trailer.x.command": "trailer",
        "pager.diff": "pager-diff",
        "log.showSignature": "true",
        "core.hooksPath": str(canaries / "hooks"),
    }
    included = canaries / "included"
    for name, word in settings.items():
        value = word if word == "true" or "/" in word else f"'{trap}' {word}"
        git(folder, "config", name, value)
        git(
            folder,
            "config",
            "-f",
            str(included),
            name,
            value.replace(word, f"included-{word}") if word != "true" else value,
        )
    git(folder, "config", "include.path", str(included))
    for hooks in (canaries / "hooks", folder / ".git" / "hooks"):
        hooks.mkdir(exist_ok=True)
        for hook in HOOKS:
            (hooks / hook).write_text(f'#!/bin/sh\nexec "{trap}" hook-{hook}\n')
            (hooks / hook).chmod(0o755)


def triggered(canaries: Path) -> list[str]:
    return sorted(path.name for path in canaries.glob("sang-*"))


@pytest.fixture
def canaries(tmp_path: Path) -> Path:
    (tmp_path / "canaries").mkdir()
    return tmp_path / "canaries"


async def test_no_program_that_a_repository_names_runs(tmp_path: Path, canaries: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "1\n", ".gitattributes": "* filter=trap diff=trap merge=trap\n"})
    write(one, {"a": "1\nchanged\n"})
    worked = copy(one, "worked")
    write(worked, {"a": "1\nchanged\nmore\n", "b": "new\n"})
    commit(worked, "by the agent")
    write(worked, {"a": "rest\n"})
    other = copy(one, "other")
    hostile(one, canaries)
    hostile(other, canaries)
    git(one, "status", check=False)
    assert triggered(canaries)  # the trap works
    for canary in canaries.glob("sang-*"):
        canary.unlink()

    async with watch_folder(one) as watch:
        for name in ("a", "b"):
            write(one, {name: (worked / name).read_text()})
        for path in (worked / ".git" / "objects").rglob("*"):
            target = one / ".git" / "objects" / path.relative_to(worked / ".git" / "objects")
            if path.is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
        head = git(worked, "rev-parse", "HEAD")
        (one / ".git" / "refs" / "heads" / "main").write_text(head)
        changes = await watch.changes()
    await apply_changes(other, changes)
    assert triggered(canaries) == []
    assert content(other) == content(worked)
    assert (other / ".git" / "refs" / "heads" / "main").read_text() == head
    assert len(changes.commits) == 1


async def test_only_settings_of_the_user_that_are_data_are_used(
    tmp_path: Path, canaries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ignore").write_text("*.mine\n")
    home = tmp_path / "gitconfig"
    git(tmp_path, "config", "-f", str(home), "core.excludesFile", str(tmp_path / "ignore"))
    git(tmp_path, "config", "-f", str(home), "diff.external", f"touch {canaries}/sang-user")
    git(tmp_path, "config", "-f", str(home), "user.name", "Grace")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"touch {canaries}/sang-environment")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    one = new_repository(tmp_path / "one")
    async with watch_folder(one) as watch:
        write(one, {"a.mine": "x\n", "b": "y\n"})
        changes = await watch.changes()
    assert "a.mine" not in changes.patch
    assert "+++ b/b" in changes.patch
    assert triggered(canaries) == []
    repository = find_repository(one)
    assert repository is not None
    assert (await repository.settings())["user.name"] == "Grace"


async def test_a_repository_that_lacks_objects_fetches_nothing(tmp_path: Path, canaries: Path) -> None:
    one = new_repository(tmp_path / "one", {"a": "gone\n", "b": "1\n"})
    blob = git(one, "rev-parse", "HEAD:a").strip()
    (one / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    git(one, "config", "core.repositoryFormatVersion", "1")
    git(one, "config", "extensions.partialClone", "origin")
    git(one, "config", "remote.origin.promisor", "true")
    git(one, "config", "remote.origin.url", f"ext::touch {canaries}/sang-remote")
    git(one, "config", "protocol.ext.allow", "always")
    async with watch_folder(one) as watch:
        write(one, {"b": "2\n"})
        changes = await watch.changes()
    assert "+2" in changes.patch
    assert triggered(canaries) == []


async def test_attributes_do_not_change_bytes(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one", {"a.txt": "1\r\n2\r\n", "keep": "x\n"})
    write(one, {".gitattributes": "*.txt text eol=crlf ident\n"})
    commit(one, "attributes")
    other = copy(one, "other")
    async with watch_folder(one) as watch:
        (one / "b.txt").write_bytes(b"$Id$\r\nmixed\n\r\n")
        (one / "keep").write_bytes(b"y\r\n")
        changes = await watch.changes()
    await apply_changes(other, changes)
    assert content(other) == content(one)


async def test_no_temporary_files_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    one = new_repository(tmp_path / "one")
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    async with watch_folder(one) as watch:
        write(one, {"a": "1\n"})
        changes = await watch.changes()
    await apply_changes(copy(one, "other"), Changes(patch=changes.patch))
    assert list(temporary.iterdir()) == []
    assert before == 0 or len(os.listdir("/proc/self/fd")) <= before
