"""A package that the user has installed brings workflows, and nothing of it runs before one is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.user import User
from tests.support.user_workflows import HEAD

FLOW = 'workflow = graph(S).tool("work", lambda state: 1, output_mapper=lambda one, state: {}).compile()\n'


@pytest.fixture
def site(user: User, tmp_path: Path) -> Path:
    """Install a package with two workflows, by hand, as pip would."""
    site = tmp_path / "site"
    info = site / "report_flows-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: report-flows\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[console_scripts]\nx = report_flows:main\n\n"
        "[atomic.workflows]\nweekly = report_flows.flows.weekly\nralph = report_flows.flows.weekly_too\n"
        "gone = report_flows.nothing\n"
    )
    flows = site / "report_flows" / "flows"
    flows.mkdir(parents=True)
    (site / "report_flows" / "__init__.py").write_text("open('imported', 'w').close()\n")
    (flows / "__init__.py").write_text("")
    (flows / "helper.py").write_text("WORDS = ['from a helper']\n")
    code = 'from .helper import WORDS\ndescription = "Write the weekly report"\ndefault_config = {"pages": 2}\n'
    (flows / "weekly.py").write_text(HEAD + code + FLOW)
    (flows / "weekly_too.py").write_text(HEAD + FLOW)
    user.env["PYTHONPATH"] += f":{site}"
    return site


async def test_a_workflow_of_a_package_is_listed_and_runs(user: User, site: Path) -> None:
    listed = await user.atomic("workflows", "list")
    [line] = [line for line in listed.stdout.splitlines() if line.startswith("weekly")]
    assert "report-flows 1.2" in line
    assert "Write the weekly report" in line
    assert 'the package report-flows 1.2 names the workflow "gone"' in listed.stderr
    found = {one["name"]: one for one in json.loads((await user.atomic("workflows", "--json")).stdout)}
    assert (found["weekly"]["source"], found["weekly"]["trusted"]) == ("package", True)
    assert not (user.project / "imported").exists()
    shown = await user.atomic("workflows", "show", "weekly")
    assert "source:    package report-flows 1.2" in shown.stdout
    assert "--pages" in (await user.atomic("complete", "run", "weekly", "--")).stdout
    assert "weekly" in (await user.atomic("complete", "run", "")).stdout.split()

    done = await user.atomic("run", "weekly", "go")
    assert done.exit_code == 0, done.stderr
    assert (user.project / "imported").exists()


async def test_a_package_hides_no_workflow_of_atomic(user: User, site: Path) -> None:
    found = {one["name"]: one for one in json.loads((await user.atomic("workflows", "--json")).stdout)}
    assert found["ralph"]["source"] == "builtin"


async def test_the_users_own_workflow_wins_over_a_package(user: User, site: Path) -> None:
    own = user.home / ".atomic" / "workflows"
    own.mkdir(parents=True)
    (own / "weekly.py").write_text(HEAD + FLOW)
    found = {one["name"]: one for one in json.loads((await user.atomic("workflows", "--json")).stdout)}
    assert found["weekly"]["source"] == "user"
