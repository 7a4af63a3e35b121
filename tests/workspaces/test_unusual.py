"""Workspaces of unusual repositories: each copy is right, and everything comes back out of it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from atomic.workspaces import Isolation, tracked_files_in
from tests.support.repositories import commit, git, new_repository, write
from tests.workspaces.kinds import KINDS, each
from tests.workspaces.places import ADA, REF, Place, fingerprint, shell

pytestmark = pytest.mark.ci

FILES = {".gitignore": "ignored\n", "a.txt": "one\n$Id$\n", "src/b.txt": "two\n", "other/c.txt": "three\n"}
FILE_URL = ("-c", "protocol.file.allow=always")


def plain(folder: Path) -> Path:
    project = new_repository(folder / "project", FILES)
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    (project / "link").symlink_to("nowhere")
    commit(project)
    return project


def sha256(folder: Path) -> Path:
    project = folder / "project"
    project.mkdir()
    git(project, "init", "-q", "-b", "main", "--object-format=sha256")
    write(project, FILES)
    commit(project)
    return project


def with_attributes(attributes: str, **settings: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        project = new_repository(folder / "project", {**FILES, ".gitattributes": attributes})
        for name, value in settings.items():
            git(project, "config", f"core.{name}", value)
        _check_out_again(project)
        return project

    return make


def encoded(folder: Path) -> Path:
    project = new_repository(folder / "project", {".gitattributes": "*.txt text working-tree-encoding=UTF-16LE\n"})
    for name, text in FILES.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text, encoding="utf-16-le" if name.endswith(".txt") else "ascii")
    commit(project)
    return project


def _check_out_again(project: Path) -> None:
    """Write all files as the settings of the repository want them."""
    for name in git(project, "ls-files").split():
        (project / name).unlink()
    git(project, "checkout", "-q", "--", ".")


def sparse(folder: Path) -> Path:
    project = plain(folder)
    git(project, "sparse-checkout", "set", "src")
    return project


def sparse_without_value(folder: Path) -> Path:
    """Make one whose settings have no value, which means true."""
    project = sparse(folder)
    for name in ("config", "config.worktree"):
        file = project / ".git" / name
        if file.exists():
            file.write_text(file.read_text().replace("sparseCheckout = true", "sparseCheckout"))
    return project


def sparse_index(folder: Path) -> Path:
    project = plain(folder)
    git(project, "sparse-checkout", "set", "--cone", "--sparse-index", "src")
    return project


def sparse_patterns(folder: Path) -> Path:
    project = plain(folder)
    git(project, "sparse-checkout", "set", "--no-cone", "/*", "!/other/")
    return project


def shallow(folder: Path) -> Path:
    origin = plain(folder / "of")
    commit(origin, "second")
    git(folder, "clone", "-q", "--depth=1", f"file://{origin}", "project")
    return folder / "project"


def partial(filter: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        origin = plain(folder / "of")
        write(origin, {"a.txt": "a later version\n$Id$\n"})
        commit(origin, "second")
        git(origin, "config", "uploadpack.allowFilter", "true")
        git(origin, "config", "uploadpack.allowAnySHA1InWant", "true")
        git(folder, *FILE_URL, "clone", "-q", f"--filter={filter}", f"file://{origin}", "project")
        return folder / "project"

    return make


def alternates(folder: Path) -> Path:
    origin = plain(folder / "of")
    git(folder, "clone", "-q", "--shared", str(origin), "project")
    other = folder / "project" / ".git" / "objects"
    (other / "info" / "alternates").write_text(f"{os.path.relpath(origin / '.git' / 'objects', other)}\n")
    return folder / "project"


def worktree(folder: Path) -> Path:
    main = plain(folder / "of")
    git(main, "worktree", "add", "-q", "-b", "side", str(folder / "project"))
    return folder / "project"


def separate_git_folder(folder: Path) -> Path:
    project = plain(folder)
    git(project, "init", "-q", f"--separate-git-dir={folder / 'elsewhere.git'}")
    return project


def odd_names(folder: Path) -> Path:
    project = plain(folder)
    for name in (
        b"new\nline",
        b"latin-\xe9",
        b"-dash",
        b"a*b?[c]",
        b' "quo\\ted" ',
        "ü".encode(),
        b"A.TXT",
        b"#x",
        b"!y",
    ):
        Path(os.fsdecode(os.path.join(os.fsencode(project), name))).write_bytes(name)
    commit(project, "odd")
    return project


def odd_path(folder: Path) -> Path:
    return plain(folder / " a b:c,d\\e\"f'=,upperdir=x")


def by_link(folder: Path) -> Path:
    (folder / "link").symlink_to(plain(folder / "of"))
    return folder / "link"


def detached_and_packed(folder: Path) -> Path:
    project = plain(folder)
    git(project, "pack-refs", "--all")
    git(project, "checkout", "-q", "--detach")
    return project


def git_folder_is_a_link(folder: Path) -> Path:
    project = plain(folder)
    (project / ".git").rename(folder / "real.git")
    (project / ".git").symlink_to(folder / "real.git")
    return project


UNUSUAL: dict[str, Callable[[Path], Path]] = {
    "plain": plain,
    "sha256": sha256,
    "autocrlf": with_attributes("* text=auto\n", autocrlf="true"),
    "eol": with_attributes("*.txt text eol=crlf\n"),
    "ident": with_attributes("*.txt ident\n"),
    "encoding": encoded,
    "export-ignore": with_attributes("src export-ignore\n"),
    "sparse": sparse,
    "sparse-without-value": sparse_without_value,
    "sparse-index": sparse_index,
    "sparse-patterns": sparse_patterns,
    "shallow": shallow,
    "partial-blobs": partial("blob:none"),
    "partial-trees": partial("tree:0"),
    "alternates": alternates,
    "worktree": worktree,
    "separate-git-folder": separate_git_folder,
    "odd-names": odd_names,
    "odd-path": odd_path,
    "by-link": by_link,
    "detached-and-packed": detached_and_packed,
    "git-folder-is-a-link": git_folder_is_a_link,
}


@pytest.fixture(params=list(UNUSUAL.values()), ids=list(UNUSUAL))
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return request.param(tmp_path)


@pytest.mark.parametrize("isolation", each(KINDS, guarded=pytest.mark.full))
async def test_a_copy_is_like_the_checkout_and_work_comes_back(
    tmp_path: Path, project: Path, isolation: Isolation
) -> None:
    place = Place(tmp_path, project, isolation)
    before = users_state(place)
    start = place.git("rev-parse", "HEAD").strip()
    tracked = [name for name in place.git("ls-files", "-z").split("\0") if name]

    workspace = await place.workspace()
    assert await hashes(place, "look") == {name: digest(project / name) for name in tracked}
    assert await shell(workspace, "git status --short") == ""

    await shell(
        workspace,
        "echo new > src/new.dat; cat src/b.txt src/b.txt > x; mv x src/b.txt; mkdir -p other; echo x > other/x",
    )
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1")
    await workspace.remove()
    changed = place.git("diff", "--no-renames", "--name-status", start, captured.result)
    assert changed == "A\tother/x\nM\tsrc/b.txt\nA\tsrc/new.dat\n"

    seen = await hashes(place, "fresh", captured.result)
    assert place.git("cat-file", "blob", f"{captured.result}:src/new.dat") == "new\n"
    assert {"other/x", "src/new.dat"} < seen.keys()
    unchanged = [name for name in tracked if name != "src/b.txt"]
    assert {name: seen[name] for name in unchanged} == {name: digest(project / name) for name in unchanged}
    assert users_state(place) == before


def users_state(place: Place) -> tuple[object, ...]:
    """Return everything of the user that a run must not touch."""
    own = place.repository.common_dir / "refs", place.repository.common_dir / "objects"
    files = {
        path: facts
        for path, facts in fingerprint(place.project.resolve(), place.repository.git_dir).items()
        if path != str(place.repository.common_dir) and not any(Path(path).is_relative_to(folder) for folder in own)
    }
    refs = [line for line in place.git("for-each-ref").splitlines() if "refs/atomic/" not in line]
    return files, refs


async def hashes(place: Place, name: str, at: str = "") -> dict[str, str]:
    """Return the hashes of the files that git knows in a new workspace."""
    workspace = await place.workspace(name, at)
    script = (
        "export LC_ALL=C; git ls-files -z | while IFS= read -r -d '' f; do"
        ' if [ -L "$f" ]; then h=$(readlink -n -- "$f" | sha256sum); elif [ -e "$f" ]; then h=$(sha256sum < "$f");'
        ' else h=absent; fi; printf "%s\\0%s\\0" "$f" "${h%% *}"; done'
    )
    async with workspace.open() as view:
        done = await view.run("bash", "-c", script)
        commit = at or workspace.base.commit
        after = await tracked_files_in(view, workspace.base.folder, commit)
    assert done.exit_code == 0, done.stderr
    assert after == (place.git("rev-parse", f"{commit}^{{tree}}").strip(), [])
    await workspace.remove()
    words = done.stdout.split("\0")
    return dict(zip(words[:-1:2], words[1::2], strict=True))


def digest(path: Path) -> str:
    if path.is_symlink():
        return hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest()
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "absent"
