"""Dependencies in a clone: they lead to the clone's code, never to the user's checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from atomic.workspaces import Isolation, IsolationKind, foreign_paths
from atomic.workspaces.copied_paths import CopiedPaths, correct_paths, find_copied_paths
from tests.support.repositories import new_repository, write
from tests.workspaces.places import ADA, REF, Place, fingerprint, shell

CLONE = Isolation(IsolationKind.CLONE)
SETUPTOOLS = """\
from setuptools import setup
setup(name="tiny", version="1", packages=["tiny"], package_dir={{"": "{layout}"}},
      entry_points={{"console_scripts": ["answer = tiny:main"]}})
"""
HATCHLING = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "tiny"
version = "1"
scripts = {{ answer = "tiny:main" }}
[tool.hatch.build]
dev-mode-dirs = ["{layout}"]
"""
CODE = "def answer():\n    return 42\n\n\ndef main():\n    print(answer())\n"
CHECK = "import tiny\nassert tiny.answer() == 42\n"


def install(project: Path) -> None:
    """Make a virtual environment with an editable install of a project, without the network."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", project / ".venv"], check=True)
    # The build tools are those of these tests: the new environment has none.
    env = {**os.environ, "PYTHONPATH": sysconfig.get_paths()["purelib"]}
    python = project / ".venv/bin/python"
    if (project / "setup.py").exists():  # pip would need the package `wheel`
        words = [python, "setup.py", "-q", "develop", "--no-deps"]
    else:
        words = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "--no-deps"]
        words += ["--no-build-isolation", "-e", "."]
    subprocess.run(words, cwd=project, env=env, check=True)


@pytest.mark.parametrize("layout", ["src", pytest.param(".", marks=pytest.mark.ci)])
@pytest.mark.parametrize("build", [pytest.param("setup.py", marks=pytest.mark.ci), "pyproject.toml"])
async def test_a_check_in_a_clone_is_red_exactly_if_the_clones_code_is_broken(
    tmp_path: Path, build: str, layout: str
) -> None:
    # The first line of a script that setuptools makes cannot have a space.
    name, text = ("project", SETUPTOOLS) if build == "setup.py" else ("my project", HATCHLING)
    files = {build: text.format(layout=layout), f"{layout}/tiny/__init__.py": CODE, "test/check.py": CHECK}
    project = new_repository(tmp_path / name, {**files, ".gitignore": ".venv\n*.egg-info\n__pycache__\n"})
    install(project)
    place = Place(tmp_path, project, CLONE)
    before = fingerprint(project)
    workspace = await place.workspace()
    check = ".venv/bin/python test/check.py && .venv/bin/answer"
    assert await shell(workspace, check) == "42\n"
    where = await shell(workspace, ".venv/bin/python -c 'import tiny; print(tiny.__file__)'")
    assert where == f"{Path(workspace.root, layout, 'tiny/__init__.py')}\n"
    broken = await shell(workspace, f"sed -i s/42/421/ {layout}/tiny/__init__.py; ({check}) 2>&1 || echo red")
    assert broken.endswith("red\n")
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1")
    fresh = await place.workspace("check", captured.result)
    assert (await shell(fresh, f"({check}) 2>&1 || echo red")).endswith("red\n")
    # The other way: the user's code is broken, the clone's is not.
    (project / layout / "tiny" / "__init__.py").write_text("raise SystemExit(9)\n")
    other = await place.workspace("other")
    assert await shell(other, check) == "42\n"
    (project / layout / "tiny" / "__init__.py").write_text(CODE)
    after = fingerprint(project)
    assert {path: facts[2] for path, facts in after.items() if ".git/" not in path} == {
        path: facts[2] for path, facts in before.items() if ".git/" not in path
    }


async def test_only_whole_paths_in_ignored_texts_and_links_are_replaced(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "app", {".gitignore": "deps\n", "tracked": f"{tmp_path}/app/x\n"})
    texts = {
        "deps/a": f"{tmp_path}/app/src\n'{tmp_path}/app' -I{tmp_path}/app/inc file://{tmp_path}/app",
        "deps/longer": f"{tmp_path}/app2 {tmp_path}/app-old/x /mnt{tmp_path}/app/x {tmp_path}/app.txt",
        "deps/run": f"#!{tmp_path}/app/bin/x\n",
    }
    write(project, texts)
    (project / "deps/run").chmod(0o555)
    (project / "deps/binary").write_bytes(b"\0" + os.fsencode(tmp_path) + b"/app/src\0")
    (project / "deps/cached.pyc").write_bytes(b"\0" + os.fsencode(tmp_path) + b"/app/src\0")
    (project / "deps/link").symlink_to(tmp_path / "app/tracked")
    (project / "deps/other").symlink_to("/usr/bin/env")
    os.utime(project / "deps/run", (1, 2))
    found = await find_copied_paths(project, [project])
    assert found == CopiedPaths(("deps/a", "deps/run"), ("deps/link",), ("deps/binary",))
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", project, copy], check=True)
    correct_paths(copy, found, [project])
    assert (copy / "deps/a").read_text() == f"{copy}/src\n'{copy}' -I{copy}/inc file://{copy}"
    assert (copy / "deps/longer").read_text() == texts["deps/longer"]
    assert (copy / "deps/run").read_text() == f"#!{copy}/bin/x\n"
    assert (copy / "deps/run").stat().st_mode & 0o777 == 0o555
    assert (copy / "deps/run").stat().st_mtime == 2
    assert (copy / "deps/link").readlink() == copy / "tracked"
    assert (copy / "deps/other").readlink() == Path("/usr/bin/env")
    assert (copy / "tracked").read_text() == f"{tmp_path}/app/x\n"
    assert (project / "deps/a").read_text() == texts["deps/a"]


async def test_paths_in_addresses_and_json_are_replaced(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "my äpp", {".gitignore": "deps\n"})
    texts = {"deps/a": f"file://{tmp_path}/my%20%C3%A4pp/x", "deps/b": f'"{tmp_path}/my \\u00e4pp"'}
    write(project, texts)
    found = await find_copied_paths(project, [project])
    copy = tmp_path / "the cöpy"
    subprocess.run(["cp", "-a", project, copy], check=True)
    correct_paths(copy, found, [project])
    assert (copy / "deps/a").read_text() == f"file://{tmp_path}/the%20c%C3%B6py/x"
    assert (copy / "deps/b").read_text() == f'"{tmp_path}/the c\\u00f6py"'


async def test_files_that_cannot_be_corrected_are_named(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "app", {".gitignore": "target\n"})
    write(project, {"target/lib.a": f"\0{project}/src\0"})
    place = Place(tmp_path, project, CLONE)
    base = await place.base()
    assert await foreign_paths(base) == ("target/lib.a",)
    assert await foreign_paths(base) == ("target/lib.a",)  # from the file that keeps it
