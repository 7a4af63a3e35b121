"""The metadata of a wheel works on an index page, where the repository is missing."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.waits import HANG

ROOT = Path(__file__).parents[2]
ADDRESS = "https://forge.test/me/atomic"
TARGETS = re.compile(r"""\]\(([^)\s]+)\)|(?:src|href)="([^"]+)\"""")
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def build(folder: Path, **env: str) -> tuple[Message, ConfigParser]:
    """Build a wheel, and return its metadata and its entry points."""
    words = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder))
    done = subprocess.run(words, cwd=ROOT, env={"PATH": "/usr/bin:/bin", **env}, capture_output=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    [wheel] = folder.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        [info] = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        scripts = ConfigParser()
        scripts.read_string(archive.read(f"{info}/entry_points.txt").decode())
    return metadata, scripts


def targets(metadata: Message) -> list[str]:
    text = FENCE.sub("", str(metadata.get_payload()))
    return [one or two for one, two in TARGETS.findall(text)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> tuple[Message, ConfigParser]:
    return build(tmp_path_factory.mktemp("wheel"), ATOMIC_REPOSITORY=f"{ADDRESS}.git")


def test_links_and_pictures_of_the_readme_are_whole_addresses(wheel: tuple[Message, ConfigParser]) -> None:
    found = targets(wheel[0])
    assert found
    assert [target for target in found if "://" not in target] == []
    for target in found:
        if target.startswith(f"{ADDRESS}/"):
            kind, commit, path = target.removeprefix(f"{ADDRESS}/").split("/", 2)
            assert re.fullmatch(r"[0-9a-f]{40}|HEAD", commit)
            assert (ROOT / path.partition("#")[0]).exists()
            assert kind == ("raw" if path.endswith((".svg", ".png", ".gif")) else "blob")


def test_the_index_lists_where_to_go_and_which_pythons(wheel: tuple[Message, ConfigParser]) -> None:
    metadata = wheel[0]
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL", []))
    assert set(urls) == {"Source", "Documentation", "Changelog", "Issues"}
    assert all(url.startswith(ADDRESS) for url in urls.values())
    classifiers = set(metadata.get_all("Classifier", []))
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 16)} <= classifiers


def test_the_name_of_the_package_is_a_command_too(wheel: tuple[Message, ConfigParser]) -> None:
    scripts = dict(wheel[1]["console_scripts"])
    assert scripts["atomic-workflows"] == scripts["atomic"]


def test_a_token_in_the_address_is_not_published(tmp_path: Path) -> None:
    metadata, _ = build(tmp_path, ATOMIC_REPOSITORY="https://me:ghp_secret@forge.test/me/atomic.git")
    assert "ghp_secret" not in metadata.as_string()
    assert f"Source, {ADDRESS}" in metadata.get_all("Project-URL", [])


def test_without_an_address_nothing_is_invented(tmp_path: Path) -> None:
    # A path is no address: nobody else can open it.
    metadata, _ = build(tmp_path, ATOMIC_REPOSITORY=str(tmp_path))
    assert metadata.get_all("Project-URL", []) == []
    assert [target for target in targets(metadata) if "://" not in target] == []


def test_only_the_job_that_publishes_may_ask_for_a_token() -> None:
    flow: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))
    jobs = flow["jobs"]
    assert flow["permissions"] == {"contents": "read"}
    assert {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})} == {"publish"}
    assert set(jobs["publish"]["needs"]) == {"build", "check", "wheel"}
    assert jobs["publish"]["if"] == "github.ref_type == 'tag'"
    assert jobs["wheel"]["strategy"]["matrix"]["python"] == [f"3.{minor}" for minor in range(11, 16)]
