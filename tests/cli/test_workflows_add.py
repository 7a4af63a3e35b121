"""`atomic workflows add`: code of someone else is shown, pinned by its hash, and never run to be added."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.repositories import git
from tests.support.terminal import in_terminal
from tests.support.tmux import in_tmux
from tests.support.user import ATOMIC, User, complaint
from tests.support.user_workflows import HEAD

FLOW = 'workflow = graph(S).tool("work", lambda state: 1, output_mapper=lambda one, state: {}).compile()\n'
FUNCTION = """from atomic.workflows import Flow, workflow

@workflow
async def hello(flow: Flow, prompt: str) -> str:
    return prompt
"""
SIDE_EFFECT = "import pathlib\npathlib.Path('ran').touch()\n"


def shared(folder: Path, **files: str) -> Path:
    """Write workflows that import nothing but Atomic, in a folder to share."""
    for name, code in files.items():
        path = folder / "workflows" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SIDE_EFFECT + HEAD + code)
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with two versions of a workflow, a hook and a filter."""
    folder = shared(tmp_path / "shared", nightly=FLOW)
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitattributes").write_text("*.py filter=evil\n")
    git(folder, "config", "filter.evil.smudge", f"touch {tmp_path}/ran")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "One")
    git(folder, "tag", "v1")
    (folder / "workflows" / "nightly.py").write_text(SIDE_EFFECT + HEAD + FLOW + "# two\n")
    git(folder, "commit", "-qam", "Two")
    return folder


def hash_of(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


async def test_without_a_terminal_the_hash_is_needed(user: User, tmp_path: Path) -> None:
    file = shared(tmp_path / "s", nightly=FLOW) / "workflows" / "nightly.py"
    refused = await user.atomic("workflows", "add", str(file))
    assert (refused.exit_code, refused.stdout) == (4, "")
    assert f"--trust {hash_of(file)}" in refused.stderr
    assert "pathlib.Path('ran').touch()" in refused.stderr  # the code is shown
    wrong = await user.atomic("workflows", "add", str(file), "--trust", "0" * 64)
    assert (wrong.exit_code, hash_of(file) in complaint(wrong)) == (4, True)
    assert not (user.home / ".atomic" / "workflows").exists()

    done = await user.atomic("workflows", "add", str(file), "--trust", hash_of(file))
    assert done.exit_code == 0, done.stderr
    added = Path(done.stdout.strip())
    assert (added, added.read_bytes()) == (user.home / ".atomic/workflows/nightly.py", file.read_bytes())
    assert not (user.project / "ran").exists()
    assert (await user.atomic("run", "nightly", "go")).exit_code == 0
    assert (user.project / "ran").exists()


async def test_a_file_with_a_workflow_function_is_added_and_runs(user: User, tmp_path: Path) -> None:
    file = tmp_path / "shared" / "hello.py"
    file.parent.mkdir()
    file.write_text(FUNCTION)
    (file.parent / "helper.py").write_text("from atomic.workflows import workflow\n")
    for source in (file, file.parent):
        done = await user.atomic("workflows", "add", str(source), "--trust", hash_of(file))
        assert done.exit_code == 0, done.stderr
    assert (await user.atomic("run", "hello", "go")).stdout == "go\n"


async def test_the_same_file_is_not_added_again(user: User, tmp_path: Path) -> None:
    file = shared(tmp_path / "s", nightly=FLOW) / "workflows" / "nightly.py"
    assert (await user.atomic("workflows", "add", str(file), "--trust", hash_of(file))).exit_code == 0
    again = await user.atomic("workflows", "add", str(file))
    added = user.home / ".atomic" / "workflows" / "nightly.py"
    assert (again.exit_code, complaint(again)) == (0, f"nightly is added already: {added}")
    added.write_text("# mine\n")
    assert (await user.atomic("workflows", "add", str(file))).exit_code == 4


async def test_an_empty_source_is_not_the_current_folder(user: User) -> None:
    shared(user.project, nightly=FLOW)
    refused = await user.atomic("workflows", "add", "")
    assert (refused.exit_code, "the source is empty" in complaint(refused)) == (2, True)


async def test_a_file_without_the_ending_of_python_is_no_workflow(user: User) -> None:
    (user.project / "ralph").write_text("workflow = 1\n")
    refused = await user.atomic("run", "./ralph", "x")
    assert (refused.exit_code, complaint(refused)) == (2, "./ralph: the name of a workflow file ends in .py: rename it")


async def test_at_a_terminal_a_typed_yes_adds_it(user: User, tmp_path: Path) -> None:
    folder = shared(tmp_path / "s", nightly=FLOW)
    async with in_terminal([ATOMIC, "workflows", "add", str(folder)], env=user.env, cwd=user.project) as terminal:
        await terminal.shows("Add exactly this code, to run with your rights? [y/N]")
        terminal.type("n\r")
        assert await terminal.exit_code() == 4
    assert not (user.home / ".atomic" / "workflows").exists()
    async with in_terminal([ATOMIC, "workflows", "add", str(folder)], env=user.env, cwd=user.project) as terminal:
        await terminal.shows("[y/N]")
        terminal.type("y\r")
        assert await terminal.exit_code() == 0
    assert (user.home / ".atomic" / "workflows" / "nightly.py").exists()


@pytest.mark.ci
async def test_a_long_source_leaves_room_for_the_descriptions(user: User, tmp_path: Path) -> None:
    code = 'description = "Tidy up at night"\n' + FLOW
    folder = shared(tmp_path / "a-folder-with-a-long-name" / "for-everyone-in-the-team", nightly=code)
    file = folder / "workflows" / "nightly.py"
    done = await user.atomic("workflows", "add", str(file), "--trust", hash_of(file))
    assert done.exit_code == 0, done.stderr
    with in_tmux([ATOMIC, "workflows"], env=user.env, cwd=user.project) as tmux:
        text = tmux.shows("EXIT CODE 0")
    assert "user, from /" in text
    assert "Tidy up at night" in text


async def test_a_repository_is_pinned_and_updated_and_runs_nothing(
    user: User, repository: Path, tmp_path: Path
) -> None:
    url = f"file://{repository}"
    old = sha256((SIDE_EFFECT + HEAD + FLOW).encode()).hexdigest()
    done = await user.atomic("workflows", "add", f"{url}@v1", "--trust", old)
    assert done.exit_code == 0, done.stderr
    commit = git(repository, "rev-parse", "v1").strip()
    [line] = [line for line in (await user.atomic("workflows")).stdout.splitlines() if line.startswith("nightly")]
    assert f"user, from {url}@{commit[:12]}" in line
    pin = json.loads((user.home / ".atomic" / "added.json").read_text())["workflows"]["nightly"]
    assert (pin["commit"], pin["revision"], pin["sha256"]) == (commit, "v1", old)

    # The hash of the old version does not let the new one in; its own does.
    assert (await user.atomic("workflows", "add", url, "--trust", old)).exit_code == 4
    new = hash_of(repository / "workflows" / "nightly.py")
    assert (await user.atomic("workflows", "add", url, "--trust", new)).exit_code == 0
    mine = user.home / ".atomic" / "workflows" / "nightly.py"
    assert hash_of(mine) == new

    # What the user has edited is kept, and shown as edited.
    mine.write_text(mine.read_text() + "# mine\n")
    assert "changed since" in (await user.atomic("workflows")).stdout
    refused = await user.atomic("workflows", "add", f"{url}@v1", "--trust", old)
    assert (refused.exit_code, "has been edited" in complaint(refused)) == (2, True)
    assert not (tmp_path / "ran").exists()
    assert not (user.project / "ran").exists()


async def test_a_branch_with_a_slash_can_be_named_and_what_is_missing_is_said(user: User, repository: Path) -> None:
    git(repository, "branch", "feature/x", "v1")
    url = f"file://{repository}"
    old = sha256((SIDE_EFFECT + HEAD + FLOW).encode()).hexdigest()
    done = await user.atomic("workflows", "add", f"{url}@feature/x", "--trust", old)
    assert done.exit_code == 0, done.stderr
    gone = await user.atomic("workflows", "add", f"{url}-gone")
    assert (gone.exit_code, "does not appear to be a git repository" in complaint(gone)) == (2, True), gone.stderr


async def test_a_workflow_with_the_name_of_a_builtin_one_is_refused(user: User, tmp_path: Path) -> None:
    folder = shared(tmp_path / "s", ralph=FLOW)
    file = folder / "workflows" / "ralph.py"
    refused = await user.atomic("workflows", "add", str(file), "--trust", hash_of(file))
    assert (refused.exit_code, '"ralph" is a workflow of Atomic' in complaint(refused)) == (2, True), refused.stderr


async def test_of_several_workflows_one_is_named(user: User, tmp_path: Path) -> None:
    folder = shared(tmp_path / "s", one=FLOW, two=FLOW)
    refused = await user.atomic("workflows", "add", str(folder))
    assert (refused.exit_code, "several workflows: one, two" in complaint(refused)) == (2, True)
    file = folder / "workflows" / "two.py"
    assert (await user.atomic("workflows", "add", str(folder), "two", "--trust", hash_of(file))).exit_code == 0


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("ext::sh -c 'touch ran'", "characters that an address cannot have"),
        ("--upload-pack=touch ran", "Unknown flag|unknown flag"),
        ("https://forge.test/a/b@--output=x", "is no branch, tag or commit"),
        ("https://me:sekret-word@forge.test/a/b", "this address has a password"),
        ("git@forge.invalid:b@-x", '"-x" is no branch, tag or commit'),
        ("git://forge.test/a/b", "only https and ssh addresses are allowed"),
        ("nothing.py", "No such file"),
    ],
)
async def test_a_source_that_is_no_source_is_refused(user: User, source: str, reason: str) -> None:
    refused = await user.atomic("workflows", "add", source)
    assert refused.exit_code == 2
    assert any(part in complaint(refused) for part in reason.split("|")), refused.stderr
    assert "sekret-word" not in refused.stderr
    assert not (user.project / "ran").exists()


async def test_a_workflow_that_needs_files_beside_it_is_refused(user: User, tmp_path: Path) -> None:
    folder = shared(tmp_path / "s", main="import helper\n" + FLOW, helper="X = 1\n")
    refused = await user.atomic("workflows", "add", str(folder))
    assert (refused.exit_code, "imports helper, a file beside it" in complaint(refused)) == (2, True)


async def test_a_workflow_of_the_user_is_never_overwritten(user: User, tmp_path: Path) -> None:
    folder = shared(tmp_path / "s", nightly=FLOW)
    mine = user.home / ".atomic" / "workflows" / "nightly.py"
    mine.parent.mkdir(parents=True)
    mine.write_text("# mine\n")
    file = folder / "workflows" / "nightly.py"
    refused = await user.atomic("workflows", "add", str(folder), "--trust", hash_of(file))
    assert (refused.exit_code, mine.read_text()) == (2, "# mine\n")
